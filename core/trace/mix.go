// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// mixes are the gang sizes of the paper's testbed workloads (section 8.1).
var mixes = map[string]string{
	"w1": "1:.75,2:.23,3:.02",
	"w2": "1:.20,2:.18,4:.60,8:.02",
}

// Mix draws the jobs' GPUs anew, run times kept: "w1", "w2", or sizes with their
// shares, "1:.8,4:.2". The same seed draws the same.
func (t *Trace) Mix(mix string, seed uint64) error {
	spec := mix
	if s, ok := mixes[strings.ToLower(mix)]; ok {
		spec = s
	}
	type part struct {
		gpus int
		upTo float64
	}
	var parts []part
	var sum float64
	for _, p := range strings.Split(spec, ",") {
		size, share, _ := strings.Cut(p, ":")
		n, err1 := strconv.Atoi(size)
		x, err2 := strconv.ParseFloat(share, 64)
		if err1 != nil || err2 != nil || n < 1 || !(x > 0 && x <= 1) {
			return fmt.Errorf("mix %q: %q is not a size and its share\nhint: w1, w2 or, say, 1:.75,2:.23,3:.02", mix, p)
		}
		sum += x
		parts = append(parts, part{n, sum})
	}
	if sum < .999 || sum > 1.001 {
		return fmt.Errorf("mix %q: the shares sum to %.3g\nhint: they must sum to 1, as in 1:.75,2:.23,3:.02", mix, sum)
	}
	r := rand.New(rand.NewPCG(seed, 0x317))
	for i := range t.Jobs {
		x := r.Float64() * sum
		for _, p := range parts {
			if t.Jobs[i].GPUs = p.gpus; x <= p.upTo {
				break
			}
		}
	}
	t.Notes = append(t.Notes, fmt.Sprintf("gang sizes drawn anew: %s", spec))
	return nil
}

// Rigid makes every job a gang of all its GPUs.
func (t *Trace) Rigid() {
	for i := range t.Jobs {
		t.Jobs[i].Elastic = false
	}
}

// Elastic lets every job run on any number of GPUs up to what it asks for.
func (t *Trace) Elastic() {
	for i := range t.Jobs {
		t.Jobs[i].Elastic = true
	}
}
