// SPDX-License-Identifier: Apache-2.0

package service

import (
	"strings"
	"time"

	"themis/bridge"
	"themis/bridge/pb"
	"themis/core/arbiter"
	"themis/core/cluster"
)

// snapshotOf reads a host's message. Ranges that a client of the host could
// have made up are bounded here; a hint that is malformed (it came past the
// submit check) reads as none.
func snapshotOf(in *pb.Snapshot) *cluster.Snapshot {
	out := &cluster.Snapshot{Host: in.Host, Cluster: in.Cluster}
	for _, n := range in.Nodes {
		node := cluster.Node{Name: n.Name, Rack: n.Rack, State: cluster.NodeState(min(n.State, pb.Node_DOWN)), CPUs: int(n.Cpus), CPUsUsed: int(n.CpusUsed),
			MemMiB: int64(n.MemMib), MemUsed: int64(n.MemUsedMib), Exclusive: n.Exclusive, Why: plain(n.Why)}
		for _, g := range n.Gpus {
			node.GPUs = append(node.GPUs, cluster.GPUs{Type: g.Type, Total: int(g.Total), Used: int(min(g.Used, g.Total))})
		}
		if len(n.Slots) <= cluster.SlotsMost {
			for _, s := range n.Slots {
				node.Slots = append(node.Slots, cluster.GPUs{Total: int(s.Total), Used: int(min(s.Used, s.Total))})
			}
		}
		node.Use = useOf(n.Extra)
		out.Nodes = append(out.Nodes, node)
	}
	for _, j := range in.Jobs {
		if j.Id != "" {
			out.Jobs = append(out.Jobs, jobOf(in.Host, j, in.Nodes))
		}
	}
	return out
}

func jobOf(host string, j *pb.Job, nodes []*pb.Node) cluster.Job {
	out := cluster.Job{Host: host,
		ID: j.Id, Gang: j.Gang, Array: j.Array, UID: j.Uid, User: plain(j.User), Account: plain(j.Account), Partition: plain(j.Partition), Name: plain(j.Name),
		Weight: max(j.Share, 0), State: cluster.JobState(min(j.State, pb.Job_ENDED)), Outcome: outcomeOf(j.Outcome), Blocked: plain(j.Blocked), BlockedOld: j.BlockedGuess,
		Submit: unix(j.SubmitS), Eligible: unix(j.EligibleS), Start: unix(j.StartS), End: unix(j.EndS),
		Limit: time.Duration(j.LimitS) * time.Second, Restarts: int(j.Restarts), Requeueable: j.Requeueable,
		MoreTasks: int(min(j.MoreTasks, 1e6)), AnyNode: j.AnyNode, Hint: hintOf(j.Comment),
		Shape: cluster.Shape{
			NodesMin: count(j.NodesMin), NodesMax: count(j.NodesMax), GPUsPerNode: count(j.GpusPerNode), GPUs: count(j.Gpus), Unit: count(j.GpusUnit), Type: j.GpuType,
			CPUsPerNode: count(j.CpusPerNode), CPUs: count(j.Cpus), CPUsPerGPU: count(j.CpusPerGpu),
			MemPerNode: memory(j.MemPerNodeMib), MemPerCPU: memory(j.MemPerCpuMib), MemPerGPU: memory(j.MemPerGpuMib), Exclusive: j.Exclusive,
		},
	}
	out.Shape.NodesMin = max(out.Shape.NodesMin, 1)
	if out.Shape.NodesMax > 0 {
		out.Shape.NodesMax = max(out.Shape.NodesMax, out.Shape.NodesMin)
	}
	for _, i := range j.Eligible {
		if int(i) < len(nodes) {
			out.Nodes = append(out.Nodes, nodes[i].Name)
		}
	}
	for _, i := range j.Required {
		if int(i) < len(nodes) {
			out.Required = append(out.Required, nodes[i].Name)
		}
	}
	for _, s := range j.On {
		if int(s.Node) < len(nodes) {
			out.Devices = append(out.Devices, s.Devices)
			out.On = append(out.On, cluster.Share{Node: nodes[s.Node].Name, GPUs: int(s.Gpus), Slots: slotsOf(s, nodes[s.Node])})
		}
	}
	return out
}

func useOf(extra string) (out cluster.Use) {
	said, _ := bridge.ParseUse(extra)
	out.Until, out.Of = said.Until, said.Of
	for _, g := range said.GPUs {
		out.GPUs = append(out.GPUs, cluster.GPUUse{Device: g.Device, Busy: float64(g.Busy) / 100, Idle: g.Idle})
	}
	return out
}

// slotsOf are a share's GPUs by slot, if they are told and add up.
func slotsOf(s *pb.Share, n *pb.Node) (in cluster.InSlots) {
	sum := 0
	for _, gpus := range s.Slots {
		sum += int(gpus)
	}
	if len(s.Slots) == len(n.Slots) && len(n.Slots) <= cluster.SlotsMost && sum == int(s.Gpus) {
		copy(in[:], s.Slots)
	}
	return in
}

const (
	mostCount  = 1 << 20 // nodes, GPUs or CPUs of a job
	mostMemory = 1 << 40 // MiB
)

func count(n uint32) int    { return int(min(n, mostCount)) }
func memory(n uint64) int64 { return int64(min(n, mostMemory)) }
func unix(s int64) time.Time {
	if s <= 0 {
		return time.Time{}
	}
	return time.Unix(s, 0).UTC()
}

// plain makes text from users safe for terminals, logs and JSON alike.
func plain(s string) string {
	const most = 128
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return clean[:min(len(clean), most)]
}

func hintOf(comment string) cluster.Hint {
	h, err := bridge.ParseHint(comment)
	if err != nil {
		return cluster.Hint{}
	}
	out := cluster.Hint{App: h.App, Runtime: h.Runtime, Remaining: h.Remaining, Progress: h.Progress,
		Checkpoint: h.Checkpoint, Model: h.Model, Place: h.Place, Order: h.Order}
	for _, s := range h.Speed {
		out.Speed = append(out.Speed, cluster.TypeSpeed(s))
	}
	for _, p := range h.Speedup {
		out.Speedup = append(out.Speedup, cluster.SpeedPoint(p))
	}
	return out
}

func outcomeOf(o pb.Job_Outcome) cluster.Outcome {
	return map[pb.Job_Outcome]cluster.Outcome{
		pb.Job_COMPLETED: cluster.Completed, pb.Job_FAILED: cluster.Failed, pb.Job_CANCELLED: cluster.Cancelled,
		pb.Job_TIMEOUT: cluster.TimedOut, pb.Job_NODE_FAIL: cluster.NodeFail,
	}[o]
}

func directivesOf(d *arbiter.Decision, c *Config) *pb.Directives {
	out := &pb.Directives{
		TickMs:          uint32(time.Duration(c.Host.Tick).Milliseconds()),
		FallbackAfterMs: uint32(time.Duration(c.Host.FallbackAfter).Milliseconds()),
	}
	for _, g := range d.Grants {
		grant := &pb.Grant{Lease: g.Lease, Job: g.Job, Order: uint32(g.Order), Anywhere: g.Anywhere, Nodes: g.Nodes}
		for _, n := range g.GPUs {
			grant.Gpus = append(grant.Gpus, uint32(n))
		}
		for _, in := range g.Slots {
			grant.Slots = append(grant.Slots, in[:]...)
		}
		out.Grants = append(out.Grants, grant)
	}
	for _, r := range d.Reclaims {
		out.Reclaims = append(out.Reclaims, &pb.Reclaim{Lease: r.Lease, Job: r.Job, Requeue: r.Requeue, Why: r.Why})
	}
	for _, w := range d.Waits {
		out.Waits = append(out.Waits, &pb.Wait{Job: w.Job, Why: w.Why})
	}
	for _, n := range d.Notes {
		out.Notes = append(out.Notes, &pb.Wait{Job: n.Job, Why: n.Why})
	}
	return out
}
