// SPDX-License-Identifier: Apache-2.0

package auction

import "math"

// Row is a bound that holds for every allocation, whatever the sizes of gangs:
// count how many boxes fit into each node (Nodes boxes into each rack, if Racks)
// and into each gang; because rounding down never gains by splitting, the boxes
// in the gangs are no more than those in the nodes.
type Row struct {
	Box      Need    `json:"box"`
	Nodes    int     `json:"nodes"` // boxes that make one, within a rack if Racks
	Racks    bool    `json:"racks,omitempty"`
	Type     string  `json:"type,omitempty"` // only GPUs and gangs of this type count
	Scope    int     `json:"scope"`          // only these nodes and gangs bound to them; -1: all
	Capacity float64 `json:"capacity"`
	Price    float64 `json:"price"` // log welfare for one more
}

// Offer is what one node had on offer when a round began.
type Offer struct {
	Name   string   `json:"name"`
	Rack   string   `json:"rack,omitempty"`
	Types  []string `json:"types"`
	GPUs   []int    `json:"gpus"` // by type
	CPUs   int      `json:"cpus"` // -1: not a resource
	MemMiB int64    `json:"mem_mib"`
	Idle   bool     `json:"idle,omitempty"`
}

func (o *Offer) gpus(typ string) int {
	var n int
	for k, t := range o.Types {
		if typ == "" || t == typ {
			n += o.GPUs[k]
		}
	}
	return n
}

// lean is the least CPUs and MiB that any gang of the round takes per GPU: what
// a node lacks of them makes some of its GPUs useless.
type lean struct{ cpus, mem float64 }

func leanest(kinds []Kind) lean {
	l := lean{math.Inf(1), math.Inf(1)}
	for i := range kinds {
		k := &kinds[i]
		gpus := float64(max(k.Need.GPUs, 1))
		cpus := float64(k.Need.CPUs) / gpus
		if k.Split { // its CPUs may sit on other nodes than its GPUs
			cpus = 1 / gpus
		}
		l.cpus, l.mem = min(l.cpus, cpus), min(l.mem, float64(k.Need.MemMiB)/gpus)
	}
	return l
}

// most is how many of so many GPUs gangs of the round could take, beside so many
// CPUs and so much memory (-1: not a resource).
func (l lean) most(gpus float64, cpus int, mem int64) float64 {
	if cpus >= 0 && l.cpus > 0 {
		gpus = min(gpus, float64(cpus)/l.cpus)
	}
	if mem >= 0 && l.mem > 0 {
		gpus = min(gpus, float64(mem)/l.mem)
	}
	return math.Floor(gpus + 1e-9)
}

// usable is how many of the node's GPUs of a type gangs of the round could take.
func usable(o *Offer, typ string, l lean) int {
	return int(min(float64(o.gpus(typ)), l.most(float64(o.gpus("")), o.CPUs, o.MemMiB)))
}

// boxes counts how many boxes fit into what there is; -1 CPUs or memory are
// without limit.
func boxes(gpus, cpus int, mem int64, box Need) int {
	n := math.MaxInt
	if box.GPUs > 0 {
		n = min(n, gpus/box.GPUs)
	}
	if box.CPUs > 0 && cpus >= 0 {
		n = min(n, cpus/box.CPUs)
	}
	if box.MemMiB > 0 && mem >= 0 {
		n = min(n, int(mem/box.MemMiB))
	}
	return n
}

// capacity is how many of the row's boxes the nodes hold; ok limits the nodes.
func capacity(r *Row, nodes []Offer, ok []bool, l lean) float64 {
	var total, alone float64
	racks := map[string]int{}
	for i := range nodes {
		if ok != nil && !ok[i] {
			continue
		}
		n := boxes(usable(&nodes[i], r.Type, l), nodes[i].CPUs, nodes[i].MemMiB, r.Box)
		switch {
		case n == math.MaxInt:
			return math.Inf(1)
		case !r.Racks:
			total += float64(n)
		case nodes[i].Rack == "":
			alone += float64(n / r.Nodes)
		default:
			racks[nodes[i].Rack] += n
		}
	}
	for _, n := range racks {
		total += float64(n / r.Nodes)
	}
	return total + alone
}

// Use is how many of the row's boxes a gang of the kind takes at the least,
// wherever it is placed; tight if it is known to be placed so.
func (r *Row) Use(k *Kind, tight bool) float64 {
	if r.Type != "" && k.Type != r.Type {
		return 0
	}
	if k.Split && !tight {
		return splitUse(r, k)
	}
	n := boxes(k.Need.GPUs, k.Need.CPUs, k.Need.MemMiB, r.Box)
	if n == math.MaxInt {
		return 0
	}
	switch nodes := k.Nodes; {
	case k.Split || nodes == 1:
		return float64(n / r.Nodes)
	case tight:
		return float64(n * nodes / r.Nodes)
	default:
		return float64(n / r.Nodes * nodes)
	}
}

// splitUse is the least over every way to divide the gang over its nodes.
func splitUse(r *Row, k *Kind) float64 {
	b := r.Box
	switch {
	case r.Racks:
		return 0
	case b.GPUs > 0 && b.CPUs == 0 && b.MemMiB == 0:
		over := k.Need.GPUs - k.Nodes*(b.GPUs-1)
		return float64(max((over+b.GPUs-1)/b.GPUs, 0))
	case b.GPUs == 0 && b.CPUs == 1 && b.MemMiB == 0:
		return float64(k.Need.CPUs)
	case b.GPUs == 0 && b.CPUs == 0 && b.MemMiB == 1:
		return float64(k.Need.MemMiB)
	}
	return 0
}
