// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"fmt"
	"testing"

	"themis/core/cluster"
)

func node(name, rack string, gpus int) Node {
	return Node{Name: name, Rack: rack, GPUs: []cluster.GPUs{{Total: gpus}}, CPUs: 32, MemMiB: 64000, Idle: true, Real: gpus}
}

func TestPlace(t *testing.T) {
	speed := []float64{1, 1, .7, .5}
	cases := []struct {
		name  string
		nodes []Node
		gang  Gang
		want  string
	}{
		{"the fullest node that holds it", []Node{node("a", "", 8), node("b", "", 5)}, Gang{Shape: cluster.Shape{GPUsPerNode: 4}}, "b:4 slot"},
		{"any split, one node if one holds it", []Node{node("a", "", 3), node("b", "", 4)}, Gang{Shape: cluster.Shape{GPUs: 4, NodesMax: 4}}, "b:4 slot"},
		{"any split over the fewest nodes", []Node{node("a", "", 3), node("b", "", 3), node("c", "", 2)}, Gang{Shape: cluster.Shape{GPUs: 6, NodesMax: 4}}, "a:3 b:3 cluster"},
		{"in pairs", []Node{node("a", "", 3), node("b", "", 5), node("c", "", 1)}, Gang{Shape: cluster.Shape{GPUs: 6, Unit: 2}}, "b:4 a:2 cluster"},
		{"in pairs, of which there are too few", []Node{node("a", "", 3), node("b", "", 3)}, Gang{Shape: cluster.Shape{GPUs: 6, Unit: 2}}, "none"},
		{"two nodes in one rack", []Node{node("a", "x", 8), node("b", "y", 8), node("c", "y", 8)}, Gang{Shape: cluster.Shape{GPUsPerNode: 8, NodesMin: 2}}, "b:8 c:8 rack"},
		{"one rack before fewer nodes", []Node{node("a", "x", 2), node("b", "x", 1), node("c", "x", 1), node("d", "y", 2)}, Gang{Shape: cluster.Shape{GPUs: 4, NodesMax: 4}}, "a:2 b:1 c:1 rack"},
		{"fewer nodes if no rack holds it", []Node{node("a", "x", 2), node("b", "x", 1), node("d", "y", 2)}, Gang{Shape: cluster.Shape{GPUs: 4, NodesMax: 4}}, "a:2 d:2 cluster"},
		{"too few CPUs on the fullest", []Node{{Name: "a", GPUs: []cluster.GPUs{{Total: 1}}, CPUs: 2, MemMiB: -1, Real: 1}, node("b", "", 8)}, Gang{Shape: cluster.Shape{GPUsPerNode: 1, CPUsPerNode: 4}}, "b:1 slot"},
		{"typed", []Node{{Name: "a", GPUs: []cluster.GPUs{{Type: "v100", Total: 4}, {Type: "a100", Total: 2}}, CPUs: -1, MemMiB: -1, Real: 6}}, Gang{Shape: cluster.Shape{GPUsPerNode: 3, Type: "a100"}}, "none"},
		{"whole nodes only", []Node{{Name: "a", GPUs: []cluster.GPUs{{Total: 8}}, CPUs: 30, MemMiB: -1, Real: 8}}, Gang{Shape: cluster.Shape{GPUsPerNode: 1, Exclusive: true}}, "none"},
		{"a required node, and more to reach the total", []Node{node("a", "", 8), node("b", "", 8), node("c", "", 2)}, Gang{Shape: cluster.Shape{GPUs: 9}, Required: []string{"b"}}, "b:8 a:1 cluster"},
		{"a required node that is full", []Node{node("a", "", 8), node("b", "", 0)}, Gang{Shape: cluster.Shape{GPUs: 2}, Required: []string{"b"}}, "none"},
		{"not eligible", []Node{node("a", "", 8)}, Gang{Shape: cluster.Shape{GPUsPerNode: 1}, Scope: NewScope(nil)}, "none"},
		{"really free before what a lease holds", []Node{{Name: "a", GPUs: []cluster.GPUs{{Total: 4}}, CPUs: -1, MemMiB: -1}, node("b", "", 8)}, Gang{Shape: cluster.Shape{GPUsPerNode: 4}}, "b:4 slot"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.gang.Rate = func(gpus int, l cluster.Level) float64 { return float64(gpus) * speed[l] }
			got := "none"
			if placed := NewSpace(c.nodes).PlaceAll([]Gang{c.gang}); placed != nil {
				p := placed[0]
				got = ""
				for _, s := range p.On {
					got += fmt.Sprintf("%s:%d ", s.Node, s.GPUs)
				}
				got += p.Level.String()
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
