// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"themis/bridge/pb"
	"themis/core/cluster"
	"themis/core/ledger"
)

// pool makes one cluster of what a Slurm and a YARN cluster see. A machine that
// is in both is one node, under Slurm's name: see arbiter/pool.go for who gets it.
type pool struct {
	alias   map[string]string // YARN's name of a node: Slurm's
	patient time.Duration     // a host silent for longer may schedule by itself
	hosts   map[string]*host  // by kind: "slurm", "yarn"

	made *cluster.Snapshot // of these, as long as they stay the same
	of   []part
}

// part is a host's part in a snapshot.
type part struct {
	snap   *cluster.Snapshot
	silent bool
}

// host is a slurmctld or a ResourceManager.
type host struct {
	kind    string
	seen    time.Time         // zero: not yet by this core
	snap    *cluster.Snapshot // the last one
	said    *pb.Snapshot      // the same, without nodes and jobs
	told    uint64            // number of the directives that it was last sent
	hash    [sha256.Size]byte // of those
	names   map[string]string // own names of its nodes, by the pool's
	members []string          // the pool's names of its nodes
	written []string          // what of that is in the ledger
}

// newPool begins with the hosts that the ledger knows.
func newPool(cfg *Config, known []ledger.Host) *pool {
	p := &pool{alias: cfg.Pool.Nodes, patient: time.Duration(cfg.Host.FallbackAfter), hosts: map[string]*host{}}
	for _, k := range known {
		p.hosts[k.Kind] = &host{kind: k.Kind, said: &pb.Snapshot{Host: k.Kind, Cluster: k.Cluster}, members: k.Nodes, written: k.Nodes}
	}
	return p
}

// take files a host's message.
func (p *pool) take(in *pb.Snapshot, now time.Time) (*host, error) {
	h := p.hosts[in.Host]
	switch {
	case in.Unchanged && (h == nil || h.snap == nil || h.said.Cluster != in.Cluster):
		return nil, status.Error(codes.FailedPrecondition, "unchanged since what? this core has seen no snapshot")
	case h == nil:
		h = &host{kind: in.Host}
		p.hosts[in.Host] = h
	case in.Cluster != h.said.Cluster && !p.silent(h, now):
		return nil, status.Errorf(codes.FailedPrecondition, "cluster %s is served here and cannot be joined by %s: a core serves one Slurm and one YARN cluster", h.said.Cluster, in.Cluster)
	}
	h.seen = now
	if !in.Unchanged {
		h.snap, h.said = snapshotOf(in), &pb.Snapshot{Host: in.Host, Cluster: in.Cluster, PrivateJobs: in.PrivateJobs, Hooks: in.Hooks}
	}
	return h, nil
}

func (p *pool) silent(h *host, now time.Time) bool {
	return h.seen.IsZero() || now.Sub(h.seen) > p.patient
}

// missing is a host that was known before this core started, which was not long
// ago, and has not been heard since: what it runs is not known yet.
func (p *pool) missing(start, now time.Time) *host {
	for _, h := range p.sorted() {
		if h.seen.IsZero() && now.Sub(start) < p.patient/2 {
			return h
		}
	}
	return nil
}

// sorted has Slurm first.
func (p *pool) sorted() []*host {
	return slices.SortedFunc(maps.Values(p.hosts), func(x, y *host) int { return cmp.Compare(x.kind, y.kind) })
}

// member is a node of one host.
type member struct {
	cluster.Node
	host   *host
	silent bool
}

// snapshot is what all hosts see, together. Nodes of a host that is silent take
// nothing new, as it may be at work on them by itself; its jobs are as they were.
func (p *pool) snapshot(now time.Time) *cluster.Snapshot {
	var of []part
	for _, h := range p.sorted() {
		of = append(of, part{h.snap, p.silent(h, now)})
	}
	if p.made == nil || !slices.Equal(of, p.of) {
		p.made, p.of = p.make(of), of
	}
	return p.made
}

func (p *pool) make(of []part) *cluster.Snapshot {
	hosts, out := p.sorted(), &cluster.Snapshot{}
	nodes, order := map[string][]member{}, []string{}
	short := map[string]string{} // the first host's names by their first label; "" if ambiguous
	for i, h := range hosts {
		if of[i].silent {
			out.Silent = append(out.Silent, h.kind)
		}
		if h.snap == nil {
			continue
		}
		h.names, h.members = map[string]string{}, nil
		for _, n := range h.snap.Nodes {
			own := n.Name
			if i > 0 {
				n.Name = p.known(own, nodes, short)
			}
			if _, twice := short[label(own)]; i == 0 && !twice {
				short[label(own)] = own
			} else if i == 0 {
				short[label(own)] = ""
			}
			if len(nodes[n.Name]) == 0 {
				order = append(order, n.Name)
			}
			h.names[n.Name], h.members = own, append(h.members, n.Name)
			nodes[n.Name] = append(nodes[n.Name], member{n, h, of[i].silent})
		}
	}
	if len(hosts) == 1 {
		return hosts[0].snap
	}
	for _, name := range order {
		out.Nodes = append(out.Nodes, together(nodes[name]))
	}
	for i, h := range hosts {
		for k := range out.Nodes {
			if n := &out.Nodes[k]; h.snap == nil && n.State == cluster.NodeUp && slices.Contains(h.members, n.Name) {
				n.State = cluster.NodeDrain
			}
		}
		if !of[i].silent {
			out.Jobs = append(out.Jobs, h.jobs(nodes, len(order))...)
		}
	}
	return out
}

// known is the pool's name of a node of YARN's.
func (p *pool) known(own string, nodes map[string][]member, short map[string]string) string {
	bare, _, _ := strings.Cut(own, ":") // a port, as of several NodeManagers of one machine
	for _, name := range []string{p.alias[own], p.alias[bare], own, bare, short[label(bare)]} {
		if len(nodes[name]) == 1 { // Slurm's alone so far
			return name
		}
	}
	return own
}

// label is a host name without its domain; an address has none.
func label(name string) string {
	if _, err := netip.ParseAddr(name); err == nil {
		return name
	}
	first, _, _ := strings.Cut(name, ".")
	return strings.ToLower(first)
}

// together makes one node of what its hosts see.
func together(of []member) cluster.Node {
	n := of[0].Node
	n.GPUs = slices.Clone(n.GPUs)
	for i, m := range of {
		total, _ := n.TotalGPUs()
		has, used := m.TotalGPUs()
		if used > 0 && n.Holder != "" {
			n.Holder = "both"
		} else if used > 0 {
			n.Holder = m.host.kind
		}
		if i > 0 {
			for k := len(n.GPUs) - 1; k >= 0; k-- { // what only one of them has is not there
				less := min(max(total-has, 0), n.GPUs[k].Total)
				n.GPUs[k].Total, total = n.GPUs[k].Total-less, total-less
				more := min(used, max(n.GPUs[k].Total-n.GPUs[k].Used, 0))
				n.GPUs[k].Used, used = n.GPUs[k].Used+more, used-more
			}
			n.State = min(n.State, m.State)
			n.CPUs, n.CPUsUsed = max(n.CPUs, m.CPUs), n.CPUsUsed+m.CPUsUsed
			n.MemMiB, n.MemUsed = max(n.MemMiB, m.MemMiB), n.MemUsed+m.MemUsed
			n.Exclusive = n.Exclusive || m.Exclusive
			n.Rack = cmp.Or(n.Rack, m.Rack)
			n.Shared, n.Slots = true, nil // each numbers the GPUs by itself
		}
	}
	if slices.ContainsFunc(of, func(m member) bool { return m.silent }) {
		n.State = max(n.State, cluster.NodeDrain)
	}
	if !n.Shared {
		n.Holder = ""
	}
	return n
}

// jobs are the host's, with the pool's names of nodes. Where a job may run that is
// not restricted: on the nodes of its host that are up for it.
func (h *host) jobs(nodes map[string][]member, all int) []cluster.Job {
	pool := make(map[string]string, len(h.names))
	up := make([]string, 0, len(h.names))
	for name, own := range h.names {
		pool[own] = name
		for _, m := range nodes[name] {
			if m.host == h && m.State == cluster.NodeUp {
				up = append(up, name)
			}
		}
	}
	slices.Sort(up)
	out := slices.Clone(h.snap.Jobs)
	for i := range out {
		j := &out[i]
		if j.AnyNode {
			j.AnyNode, j.Nodes = len(up) == all, up
		} else {
			j.Nodes = slices.DeleteFunc(renamed(j.Nodes, pool), func(n string) bool {
				_, ok := slices.BinarySearch(up, n)
				return !ok
			})
		}
		j.Required = renamed(j.Required, pool)
		j.On = slices.Clone(j.On)
		for k := range j.On {
			j.On[k].Node = pool[j.On[k].Node]
		}
	}
	return out
}

func renamed(nodes []string, to map[string]string) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = to[n]
	}
	return out
}

// own is what of the directives is the host's, in its own names of nodes.
func (p *pool) own(h *host, d *pb.Directives) *pb.Directives {
	if len(p.hosts) == 1 {
		return d
	}
	mine := make(map[string]bool, len(h.snap.Jobs))
	for i := range h.snap.Jobs {
		mine[h.snap.Jobs[i].ID] = true
	}
	out := &pb.Directives{TickMs: d.TickMs, FallbackAfterMs: d.FallbackAfterMs}
	for _, g := range d.Grants {
		if !mine[g.Job] {
			continue
		}
		var nodes []string
		for _, n := range g.Nodes {
			if own, ok := h.names[n]; ok { // not, of an Anywhere grant, another's node
				nodes = append(nodes, own)
			}
		}
		out.Grants = append(out.Grants, &pb.Grant{Lease: g.Lease, Job: g.Job, Order: g.Order, Anywhere: g.Anywhere, Nodes: nodes, Gpus: g.Gpus, Slots: g.Slots})
	}
	for _, r := range d.Reclaims {
		if mine[r.Job] {
			out.Reclaims = append(out.Reclaims, r)
		}
	}
	for _, w := range d.Waits {
		if mine[w.Job] {
			out.Waits = append(out.Waits, w)
		}
	}
	for _, n := range d.Notes {
		if mine[n.Job] {
			out.Notes = append(out.Notes, n)
		}
	}
	return out
}

// private says whether any host lets users see only their own jobs.
func (p *pool) private() bool {
	for _, h := range p.hosts {
		if h.said.PrivateJobs {
			return true
		}
	}
	return false
}
