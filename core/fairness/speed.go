// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"sort"

	"themis/core/cluster"
)

// Speeds by model: S at slot, machine and rack, as in the authors' simulator
// (paper.md's table); the cluster level is taken as the rack's.
var models = map[string][]float64{
	"vgg19": {1, .70, .50, .50}, "vgg16": {1, .72, .52, .52}, "vgg11": {1, .75, .56, .56},
	"alexnet":    {1, .80, .64, .64},
	"inception3": {1, .98, .96, .96}, "inception4": {1, .98, .96, .96}, "googlenet": {1, .98, .96, .96},
	"resnet50": {1, .98, .96, .96}, "resnet101": {1, .98, .96, .96}, "resnet152": {1, .98, .96, .96},
	// Gavel's measurements on V100: median over batch sizes and 2 to 8 GPUs of the
	// throughput of GPUs spread over machines to that within one.
	"lm": {1, 1, .23, .23}, "resnet18": {1, 1, .38, .38}, "transformer": {1, 1, .54, .54},
	"network": {1, .9, .7, .5}, "compute": {1, 1, .98, .96},
}

// defaultSpeed is S of a job that declares neither place= nor a known model=.
var defaultSpeed = []float64{1, 1, .9, .85}

// Speed is S of a job at a placement level: its speed as a fraction of that
// within a slot, relative to one machine, since most hosts do not tell slots apart.
func Speed(h cluster.Hint, level cluster.Level) float64 {
	s := place(h)
	last := len(s) - 1
	return s[min(int(level), last)] / s[min(int(cluster.Machine), last)]
}

func place(h cluster.Hint) []float64 {
	if len(h.Place) > 0 {
		return h.Place
	}
	if m, ok := models[h.Model]; ok {
		return m
	}
	return defaultSpeed
}

// Place is S of a job at each level as a fraction of that within a slot; of levels that
// nobody speaks of as at the last before.
func Place(h cluster.Hint) []float64 {
	s := place(h)
	out := make([]float64, cluster.Cluster+1)
	for level := range out {
		out[level] = s[min(level, len(s)-1)] / s[0]
	}
	return out
}

// SpeedOn is a job's speed on GPUs of a type: as its speed= says, where a type that
// it does not name is as the slowest that it names; 1 if it says nothing.
func SpeedOn(h cluster.Hint, typ string) float64 {
	if len(h.Speed) == 0 {
		return 1
	}
	least := h.Speed[0].Speed
	for _, s := range h.Speed {
		if s.Type == typ {
			return s.Speed
		}
		least = min(least, s.Speed)
	}
	return least
}

// Models lists the names that the model= hint knows, sorted.
func Models() []string {
	names := make([]string, 0, len(models))
	for n := range models {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Rate is the speed of a job of least GPUs, in GPUs, when it has gpus of them at
// a placement level: its speedup= curve relative to its smallest form, times S.
// A job without a curve gains nothing by more GPUs than it asked for, as nobody
// said that it would.
func Rate(h cluster.Hint, least, gpus int, level cluster.Level) float64 {
	n := float64(min(gpus, least))
	if len(h.Speedup) > 0 {
		if base := speedup(h.Speedup, least); base > 0 {
			n = float64(least) * speedup(h.Speedup, gpus) / base
		}
	}
	return n * Speed(h, level)
}

// speedup reads a curve: linear between points and from zero to the first, flat
// after the last.
func speedup(curve []cluster.SpeedPoint, gpus int) float64 {
	var from cluster.SpeedPoint
	for _, p := range curve {
		if gpus <= p.GPUs {
			part := float64(gpus-from.GPUs) / float64(p.GPUs-from.GPUs)
			return from.Speed + part*(p.Speed-from.Speed)
		}
		from = p
	}
	return from.Speed
}
