// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"encoding/json"
	"slices"
	"strconv"
)

// Level is what two GPUs have in common on PCIe (nvmlGpuTopologyLevel_t). A lower
// level is nearer.
type Level int

// The levels, with the words of `nvidia-smi topo -m`.
const (
	Internal   Level = 0  // on one board
	Single     Level = 10 // one PCIe switch: PIX
	Multiple   Level = 20 // several PCIe switches, no host bridge: PXB
	HostBridge Level = 30 // one host bridge: PHB
	Node       Level = 40 // one NUMA node: NODE
	System     Level = 50 // nothing nearer than the machine: SYS
)

func (l Level) String() string {
	return map[Level]string{Internal: "INT", Single: "PIX", Multiple: "PXB", HostBridge: "PHB", Node: "NODE", System: "SYS"}[l]
}

// MarshalJSON writes the word.
func (l Level) MarshalJSON() ([]byte, error) { return json.Marshal(l.String()) }

// Link is how two GPUs are connected.
type Link struct {
	A      int    `json:"a"` // index
	B      int    `json:"b"`
	NVLink int    `json:"nvlink"`         // active links between the two; over an NVSwitch, what both have to it
	Switch bool   `json:"switch"`         // over an NVSwitch
	PCIe   *Level `json:"pcie,omitempty"` // nil: NVML does not say
}

func (l Link) String() string {
	switch {
	case l.Switch:
		return "SW" + strconv.Itoa(l.NVLink)
	case l.NVLink > 0:
		return "NV" + strconv.Itoa(l.NVLink)
	case l.PCIe != nil:
		return l.PCIe.String()
	}
	return "-"
}

// links pairs the GPUs that respond. A divided one has no NVLink; an end that is neither an NVSwitch nor one of the
// GPUs (a CPU, another machine's) connects nothing here.
func links(gpus []GPU) []Link {
	out := []Link{}
	for b := range gpus {
		for a := range b {
			if !gpus[a].Responds() || !gpus[b].Responds() {
				continue
			}
			l := Link{A: gpus[a].Index, B: gpus[b].Index}
			if gpus[a].Divided() || gpus[b].Divided() {
				// MIG instances do not use NVLink (NVIDIA's MIG user guide).
			} else if n := max(direct(&gpus[a], &gpus[b]), direct(&gpus[b], &gpus[a])); n > 0 {
				l.NVLink = n
			} else if n := min(switched(&gpus[a]), switched(&gpus[b])); n > 0 {
				l.NVLink, l.Switch = n, true
			}
			if level, ok := gpus[b].levels[l.A]; ok {
				l.PCIe = &level
			}
			out = append(out, l)
		}
	}
	return out
}

func direct(from, to *GPU) (n int) {
	for _, l := range from.NVLinks {
		if !l.Switch && l.Peer != "" && l.Peer == to.Bus {
			n++
		}
	}
	return n
}

func switched(g *GPU) (n int) {
	for _, l := range g.NVLinks {
		if l.Switch {
			n++
		}
	}
	return n
}

// Slot is a set of GPUs among which a job is fastest: the paper's slot (section
// 2.2).
type Slot struct {
	GPUs []int  `json:"gpus"` // indices
	By   string `json:"by"`   // nvswitch, nvlink, socket or machine
}

// slots divides the whole GPUs that respond: first by NVLink islands (all that NVLink or an
// NVSwitch connects, directly or through others); the GPUs without NVLink by
// socket, which is the same NUMA node, or CPUs on the same socket; those whose socket
// is unknown are one slot, the machine.
func slots(gpus []GPU, links []Link, topology []cpu) []Slot {
	islands := map[int]int{} // GPU -> lowest GPU of its island
	by := map[int]string{}
	for i := range gpus {
		islands[gpus[i].Index] = gpus[i].Index
	}
	for _, l := range links {
		if l.NVLink == 0 {
			continue
		}
		kind := "nvlink"
		if a, b := islands[l.A], islands[l.B]; l.Switch || by[a] == "nvswitch" || by[b] == "nvswitch" {
			kind = "nvswitch"
		}
		a, b := islands[l.A], islands[l.B]
		for g, island := range islands {
			if island == a || island == b {
				islands[g] = min(a, b)
			}
		}
		by[min(a, b)] = kind
	}
	type key struct {
		by string
		id int
	}
	out := []Slot{}
	at := map[key]int{}
	for i := range gpus {
		g := &gpus[i]
		if !g.Responds() || g.Divided() {
			continue
		}
		k := key{by[islands[g.Index]], islands[g.Index]}
		if k.by == "" {
			k.by, k.id = "machine", 0
			if s, ok := socket(g, topology); ok {
				k.by, k.id = "socket", s
			}
		}
		n, ok := at[k]
		if !ok {
			n, at[k] = len(out), len(out)
			out = append(out, Slot{By: k.by})
		}
		out[n].GPUs = append(out[n].GPUs, g.Index)
	}
	return out
}

// socket numbers where the GPU sits: its NUMA node if known, else the lowest CPU
// of the socket that all of its CPUs are on.
func socket(g *GPU, topology []cpu) (int, bool) {
	if g.Node != nil {
		return *g.Node, true
	}
	const byCPU = rangeMost // apart from numbers of nodes
	found := -1
	for _, c := range topology {
		if !slices.Contains(g.CPUs, c.id) {
			continue
		}
		if found >= 0 && found != c.socket {
			return 0, false
		}
		found = c.socket
	}
	return byCPU + found, found >= 0
}
