// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
)

// load is the share of the cluster's GPUs that a generated trace asks for.
const load = 0.9

// generate writes a trace like those that Gavel's authors draw: gangs of 1, 2, 4
// and 8 GPUs (70, 10, 15, 5%), minutes of 10^u with u in 1.5..3 (80%) or 3..4,
// arrivals by Poisson. The same every time.
func generate(path string, jobs, gpus int) (err error) {
	r := rand.New(rand.NewPCG(1, 0))
	sizes, seconds := make([]int, jobs), make([]float64, jobs)
	var work float64 // GPU-seconds
	for i := range jobs {
		sizes[i] = 1
		switch u := r.Float64(); {
		case u >= 0.95:
			sizes[i] = 8
		case u >= 0.8:
			sizes[i] = 4
		case u >= 0.7:
			sizes[i] = 2
		}
		u := 1.5 + 1.5*r.Float64()
		if r.Float64() >= 0.8 {
			u = 3 + r.Float64()
		}
		seconds[i] = math.Round(60 * math.Pow(10, u))
		work += float64(sizes[i]) * seconds[i]
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := bufio.NewWriter(f)
	fmt.Fprintln(b, "id,submit_s,runtime_s,gpus")
	gap := work / float64(jobs) / (load * float64(gpus))
	var at float64
	for i := range jobs {
		fmt.Fprintf(b, "%d,%.0f,%.0f,%d\n", i+1, at, seconds[i], sizes[i])
		at += r.ExpFloat64() * gap
	}
	return b.Flush()
}
