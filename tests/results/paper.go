// SPDX-License-Identifier: Apache-2.0

package main

// What others report. The marks: [P] read in the THEMIS paper's text, [C] in its
// authors' code, [D] off a figure by eye, [M] from memory.

// sweepRho is the worst rho in figure 19 by lease (minutes) and f [D].
var sweepRho = map[int]map[float64]float64{
	5:  {0: 9.4, .8: 1.77, .9: 1.81, 1: 2.65},
	10: {.4: 5.1, .6: 4.5, .8: 2.29, .9: 2.55, 1: 3.95},
	20: {0: 9.8, .4: 6.0, .6: 4.0, .8: 3.77, .9: 3.73, 1: 4.8},
	40: {0: 10.2, .4: 4.8, .6: 4.1, .8: 4.19, .9: 3.88, 1: 4.8},
}

// sweepHours is the GPU-hours there at f = .8 by lease [D].
var sweepHours = map[int]float64{5: 2254, 10: 2220, 20: 2203, 40: 2160}

// testbed is max rho, and the median where it is given, on 64 GPUs [D].
var testbed = map[string]map[string]string{
	"w1": {"themis-paper": "1.32 (1.03)", "srsf": "1.78", "srtf": "1.99", "gandiva": "2.48", "tiresias": "2.57", "optimus": "3.98", "slaq": "3.9"},
	"w2": {"themis-paper": "2.15 (1.49)", "srsf": "2.33", "srtf": "3.96", "gandiva": "2.82", "tiresias": "4.26", "optimus": "3.19", "slaq": "3.74"},
}

const (
	paperGain  = 2.25 // fairness better than others by more than that [P]
	paperError = 10.8 // percent by which an error of 20% moves max rho [M]
)

// shockwaveReport is what Shockwave's paper reports of its trace on 32 GPUs [D].
var shockwaveReport = []struct {
	name                          string
	rho, makespan, jct, unfairPct float64
}{
	{"Shockwave", 1.78, 6.72, 2.77, 5.0},
	{"what it calls Themis, Gavel's policy", 3.44, 8.87, 3.14, 22.5},
}
