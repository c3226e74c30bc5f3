// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"themis/core/cluster"
)

// Health is what the checks of one Slurm node remember from one to the next. Its zero
// value is that of a node that was never checked.
type Health struct {
	Bad   int      `json:"bad"`             // checks in a row, up to the last, that were not healthy
	Good  int      `json:"good"`            // that were
	Clean bool     `json:"clean"`           // the node was seen without our mark since we last drained it
	GPUs  []Known  `json:"gpus,omitempty"`  // by index, as of the last healthy check
	Stuck *Process `json:"stuck,omitempty"` // that reads NVML and could not be ended
	Use   Use      `json:"use,omitzero"`
}

// Known is what is remembered of a GPU, as one that is lost says nothing any more.
type Known struct {
	UUID    string  `json:"uuid,omitempty"`
	File    string  `json:"file,omitempty"`
	Divided bool    `json:"divided,omitempty"` // into MIG instances
	Lately  *Lately `json:"lately,omitempty"`  // not of one that is divided
}

// Process is one of this machine.
type Process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // ticks after boot: starttime of proc(5)
}

// Rule says how many checks in a row it takes.
type Rule struct {
	Bad  int // to drain for what may pass by itself
	Good int // to undrain
}

// SlurmNode is what slurmctld says of a node.
type SlurmNode struct {
	State  string // as in scontrol show node: MIXED+DRAIN
	Reason string
	Extra  string
}

// A reason of ours begins and ends so. One that somebody has changed is no longer ours.
const (
	mark     = "themis: "
	markEnd  = "; undrained by itself when healthy"
	markMost = 250 // bytes between the two
)

// Drained says whether the node takes no jobs until somebody undrains it.
func (n SlurmNode) Drained() bool {
	return slices.ContainsFunc(strings.Split(n.State, "+"), func(s string) bool { return strings.HasPrefix(s, "DRAIN") })
}

// Ours says whether it was drained by a Health.
func (n SlurmNode) Ours() bool {
	return n.Drained() && strings.HasPrefix(n.Reason, mark) && strings.HasSuffix(n.Reason, markEnd)
}

// Idle says whether no job runs on it.
func (n SlurmNode) Idle() bool {
	base, _, _ := strings.Cut(n.State, "+")
	return base == "IDLE" || base == "DOWN"
}

// These find lines of `scontrol show node` (src/api/node_info.c); a reason's further
// lines are left.
var (
	nodeState  = regexp.MustCompile(`(?m)^ *State=(\S+)`)
	nodeReason = regexp.MustCompile(`(?m)^ *Reason=(.*?)(?: \[\S*@\S*\])?$`)
	nodeExtra  = regexp.MustCompile(`(?m)^ *Extra=(.*)$`)
)

// ParseNode reads `scontrol show node NODE`.
func ParseNode(text string) (n SlurmNode, err error) {
	state := nodeState.FindStringSubmatch(text)
	if state == nil {
		return n, fmt.Errorf("no State= in what scontrol shows of the node: %.200q", text)
	}
	n.State = state[1]
	if reason := nodeReason.FindStringSubmatch(text); reason != nil {
		n.Reason = reason[1]
	}
	if extra := nodeExtra.FindStringSubmatch(text); extra != nil {
		n.Extra = extra[1]
	}
	return n, nil
}

// Knows is what a reading tells of each GPU.
func Knows(m *Machine) []Known {
	out := make([]Known, len(m.GPUs))
	for i := range m.GPUs {
		g := &m.GPUs[i]
		if out[i] = (Known{UUID: g.UUID, File: g.File(), Divided: g.Divided()}); !g.Divided() {
			out[i].Lately = g.Lately
		}
	}
	return out
}

// Count takes in a verdict, and adds to its faults what is remembered of their GPUs.
func (h *Health) Count(v *Verdict, seen []Known) {
	if v.State == Healthy {
		h.Good, h.Bad, h.GPUs = h.Good+1, 0, seen
		return
	}
	h.Good, h.Bad = 0, h.Bad+1
	for i := range v.Faults {
		if f := &v.Faults[i]; f.GPU >= 0 && f.GPU < len(h.GPUs) && (f.UUID == "" || f.UUID == h.GPUs[f.GPU].UUID) {
			f.UUID = h.GPUs[f.GPU].UUID
			if f.File == "" {
				f.File = h.GPUs[f.GPU].File
			}
		}
	}
}

// Sick says whether the node should take no jobs.
func (h *Health) Sick(v Verdict, r Rule) bool {
	return v.State == Broken || v.State == Transient && h.Bad >= r.Bad
}

// Asks says whether what is to be done depends on the state of the node in Slurm. While all is
// well nobody is asked.
func (h *Health) Asks(v Verdict, r Rule) bool {
	return h.Sick(v, r) || v.State == Healthy && !h.Clean
}

// Act is what is to be done with a node.
type Act int

// Acts.
const (
	Nothing Act = iota
	Drain
	Undrain
)

// Decide says what is to be done with the node. What somebody else drained, or drained for
// another reason since, is left alone.
func (h *Health) Decide(v Verdict, n SlurmNode, r Rule) Act {
	switch {
	case h.Sick(v, r):
		if h.Clean = false; !n.Drained() {
			return Drain
		}
	case v.State == Healthy && !n.Ours():
		h.Clean = true
	case v.State == Healthy && h.Good >= r.Good:
		return Undrain
	}
	return Nothing
}

// Reason is the node's in one line, for `sinfo -R`: the worst faults.
func (h *Health) Reason(v Verdict) string {
	var said []string
	for _, f := range v.Faults {
		if f.State != v.State {
			continue
		}
		s := f.String()
		if f.GPU >= 0 && f.UUID != "" {
			s = fmt.Sprintf("GPU %d (%s): %s", f.GPU, f.UUID, f.Reason)
		}
		said = append(said, s)
	}
	text := strings.Join(strings.Fields(strings.Join(said, "; ")), " ")
	if v.State == Transient {
		text = fmt.Sprintf("%d checks in a row: %s", h.Bad, text)
	}
	if len(text) > markMost {
		text = strings.ToValidUTF8(text[:markMost-3], "") + "..."
	}
	return mark + strings.ReplaceAll(text, `"`, "'") + markEnd
}

// Gone lists by Slurm's numbers (IDX in `scontrol show job -d`) the devices on which nothing can go
// on. conf is the node's gres.conf. ok is false if one of them is not known.
func (h *Health) Gone(v Verdict, conf *GresFile) (devices []int, ok bool) {
	ok = true
	for _, f := range v.Faults {
		if !f.Gone {
			continue
		}
		found := conf.devices(h.GPUs, f.GPU, f.File)
		devices, ok = append(devices, found...), ok && len(found) > 0
	}
	return devices, ok
}

// devices are Slurm's numbers of the GPU of an index, whose file it is, beside others.
func (f *GresFile) devices(all []Known, index int, file string) []int {
	if len(f.Lines) > 0 {
		return f.Numbers(file)
	}
	if index < 0 || slices.ContainsFunc(all, func(k Known) bool { return k.Divided }) {
		return nil
	}
	return []int{index} // AutoDetect: in order of PCI bus id
}

// Numbers lists by Slurm's numbers the devices that are on the GPU of a device file. Slurm
// numbers them by file, or by Links where those are given: src/plugins/gres/gpu/gres_gpu.c,
// _merge_system_gres_conf().
func (f *GresFile) Numbers(file string) (out []int) {
	lines := slices.Clone(f.Lines)
	slices.SortStableFunc(lines, func(x, y GresLine) int {
		return cluster.Natural(strings.Join(x.Files, ","), strings.Join(y.Files, ","))
	})
	itself := func(l GresLine) int {
		if i := slices.Index(l.Links, -1); i >= 0 {
			return i
		}
		return len(lines) // without Links it comes last
	}
	slices.SortStableFunc(lines, func(x, y GresLine) int { return itself(x) - itself(y) })
	for i, l := range lines {
		if l.Files[0] == file {
			out = append(out, i)
		}
	}
	return out
}

// jobOn finds the lines of `scontrol show job -d` that say what the job has on which nodes
// (src/api/job_info.c), devices the GPUs in one.
var (
	jobOn   = regexp.MustCompile(`(?m)^ *Nodes=(\S+) .*\bGRES=(\S+)`)
	devices = regexp.MustCompile(`(?:^|,)gpu[^(,]*\(IDX:([0-9,-]+)\)`)
)

// DevicesOf lists by Slurm's numbers the GPUs of node that a job has; detail is what
// `scontrol show job -d` shows of it.
func DevicesOf(detail, node string) (out []int, err error) {
	for _, line := range jobOn.FindAllStringSubmatch(detail, -1) {
		nodes, err := expand(line[1])
		if err != nil {
			return nil, err
		}
		if !slices.Contains(nodes, node) {
			continue
		}
		for _, gpus := range devices.FindAllStringSubmatch(line[2], -1) {
			numbers, err := ParseRanges(gpus[1])
			if err != nil {
				return nil, err
			}
			out = append(out, numbers...)
		}
	}
	return out, nil
}
