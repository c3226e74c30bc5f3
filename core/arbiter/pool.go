// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"slices"
	"strings"

	"themis/core/auction"
	"themis/core/cluster"
)

// A node that is a slurmd and a NodeManager is shared. Each of its hosts numbers
// the node's GPUs by itself, so it is for one host at a time, with all of them. A
// round is held as if hosts could mix. A node on which jobs of two hosts won then
// goes to the host of the app that is worse off, and the round is held again,
// until no node is mixed.

// mixed stands for hosts of which none may start anything more on a node.
const mixed = "*"

// contestsMost is how often a round is held again node by node; the time after,
// every shared node that is still open goes to one host or the other.
const contestsMost = 8

// sides tells which host has each shared node: that of the leases on it, but for
// those in except, or whoever is seen to use it. "" if the node is open to all.
func (a *Arbiter) sides(except map[*Lease]bool) map[string]string {
	var out map[string]string
	use := map[string]int{}
	for i := range a.nodes {
		if n := &a.nodes[i]; n.Shared {
			if out == nil {
				out = map[string]string{}
			}
			_, use[n.Name] = n.TotalGPUs()
			out[n.Name] = ""
		}
	}
	if out == nil {
		return nil
	}
	join := func(node, host string) {
		if was, shared := out[node]; shared && was != "" && was != host {
			out[node] = mixed
		} else if shared {
			out[node] = host
		}
	}
	for _, l := range a.leases {
		for _, s := range l.On {
			if except[l] {
				use[s.Node] -= s.GPUs
			} else {
				join(s.Node, a.jobs[l.Job].Host)
			}
		}
	}
	for i := range a.nodes {
		if n := &a.nodes[i]; n.Shared && n.Holder != "" && use[n.Name] > 0 {
			join(n.Name, n.Holder)
		}
	}
	return out
}

// busyElsewhere says whether another host still has something on a shared node.
func (a *Arbiter) busyElsewhere(n *cluster.Node, host string) bool {
	if !n.Shared {
		return false
	}
	return n.Holder != "" && n.Holder != host || slices.ContainsFunc(a.leases, func(l *Lease) bool {
		return l.State != Reserved && a.jobs[l.Job].Host != host &&
			slices.ContainsFunc(l.On, func(s cluster.Share) bool { return s.Node == n.Name })
	})
}

// scope is where the job may run in this round; nil: anywhere.
func (m *market) scope(a *Arbiter, j *Job) *auction.Scope {
	closed := func(node string) bool { return m.sides[node] != "" && m.sides[node] != j.Host }
	nodes, key := j.Nodes, strings.Join(j.Nodes, "\x00")
	if m.sides != nil || j.whole {
		if j.AnyNode {
			nodes, key = nil, "\x00"
			for i := range a.nodes {
				nodes = append(nodes, a.nodes[i].Name)
			}
		}
		key = fmt.Sprint(j.Host, "\x00", j.whole, "\x00", key)
	} else if j.AnyNode {
		return nil
	}
	if m.scopes[key] == nil {
		m.scopes[key] = auction.NewScope(slices.DeleteFunc(slices.Clone(nodes), func(name string) bool {
			n := a.nodeOf(name)
			return closed(name) || n != nil && !suits(j, n)
		}))
	}
	return m.scopes[key]
}

// evicts says whether the lease, which has run out, is on a node that is another
// host's in this round.
func (m *market) evicts(l *Lease, host string) bool {
	return slices.ContainsFunc(l.On, func(s cluster.Share) bool { return m.sides[s.Node] != "" && m.sides[s.Node] != host })
}

// award gives each shared node on which jobs of several hosts won to the host of
// the app with the largest rho, and with all set each open node to some host. A
// node that was given to a host which then won elsewhere goes to the other one. It
// says whether the round is to be held again.
func (m *market) award(a *Arbiter, all bool) bool {
	if len(m.sides) == 0 {
		return false
	}
	claims := map[string]*claim{}
	wants := map[string]bool{} // hosts with jobs that won nothing
	var worst *claim
	for i := range m.bids {
		app := a.apps[m.bids[i].App]
		for _, g := range m.bids[i].Gangs {
			host := m.byJob[g.ID].Host
			if worst == nil || app.Rho > worst.rho {
				worst = &claim{rho: app.Rho, host: host}
			}
			p, won := m.placed[g.ID]
			wants[host] = wants[host] || !won
			for _, s := range p.On {
				if _, shared := m.sides[s.Node]; !shared {
					continue
				}
				c := claims[s.Node]
				if c == nil {
					c = &claim{rho: app.Rho, host: host}
					claims[s.Node] = c
				}
				c.contested = c.contested || c.host != host
				if app.Rho > c.rho {
					c.rho, c.host = app.Rho, host
				}
			}
		}
	}
	for _, l := range m.evicted {
		wants[a.jobs[l.Job].Host] = true
	}
	again := false
	for node, side := range m.sides {
		switch c := claims[node]; {
		case side == "" && c != nil && (c.contested || all):
			m.sides[node], m.awards[node] = c.host, 1
			again = again || c.contested
		case side == "" && all && worst != nil:
			m.sides[node], m.awards[node] = worst.host, 1
		case c == nil && m.awards[node] == 1:
			for host := range wants {
				if host != side {
					m.sides[node], m.awards[node] = host, 2
					again = true
				}
			}
		}
	}
	return again
}

// claim is who wants a node.
type claim struct {
	rho       float64
	host      string
	contested bool
}
