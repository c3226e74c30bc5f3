// SPDX-License-Identifier: Apache-2.0

// Command rounds measures the auction alone: how good its allocations provably
// are, how long they take, how that grows, and how long mathematical solvers
// take on the same rounds until they are as good.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"themis/core/auction"
	"themis/core/auction/auctiontest"
)

func main() {
	out := flag.String("out", "build/bench", "folder for instances and results")
	seeds := flag.Int("seeds", 100, "rounds of each size with 1,000 GPUs; a tenth as many with 10,000")
	solvers := flag.String("solvers", "highs,scip,cpsat,gurobi", "solvers to compare with; empty: none")
	each := flag.Int("each", 2, "rounds of each size that solvers get")
	limit := flag.Int("limit", 60, "seconds that a solver gets for one model")
	flag.Parse()
	if err := run(*out, *seeds, *solvers, *each, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "rounds: "+err.Error())
		os.Exit(1)
	}
}

func run(out string, seeds int, solvers string, each, limit int) error {
	runtime.GOMAXPROCS(1) // one core, as the solvers get one thread
	folder := filepath.Join(out, "rounds")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var files []string
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "round\tbids\trounds\tgap per bidder: least\tmedian\tp95\tmost\texact\tpayment bracket, median\tp95\tms: median\tp95\tper GPU, us\t")
	for _, z := range auctiontest.Sizes {
		n := seeds
		if z.GPUs > 1000 {
			n = max(seeds/10, 3)
		}
		var gaps, ms, widths []float64
		exact := 0
		for seed := range n {
			fmt.Fprintf(os.Stderr, "\r%-20s %d of %d ", z.Name, seed+1, n)
			nodes, bids := auctiontest.Round(z, uint64(seed))
			space := auction.NewSpace(nodes)
			runtime.GC()
			begin := time.Now()
			res := auction.Run(space, bids)
			took := time.Since(begin)
			p := res.Proof()
			v, err := auction.Verify(p)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", z.Name, seed, err)
			}
			gaps, ms = append(gaps, v.Gap()), append(ms, took.Seconds()*1e3)
			for _, a := range res.Awards {
				widths = append(widths, a.Payment-a.PaymentLow)
			}
			if res.Exact {
				exact++
			}
			if seed < each {
				path := filepath.Join(folder, fmt.Sprintf("%s-%d.json", z.Name, seed))
				if err := write(path, z.Name+"-"+strconv.Itoa(seed), p, took); err != nil {
					return err
				}
				files = append(files, path)
			}
		}
		fmt.Fprintf(os.Stderr, "\r%40s\r", "")
		q := func(list []float64, at float64) float64 {
			slices.Sort(list)
			if len(list) == 0 {
				return math.NaN()
			}
			return list[min(int(at*float64(len(list))), len(list)-1)]
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%.5f\t%.5f\t%.5f\t%.5f\t%d\t%.4f\t%.4f\t%.1f\t%.1f\t%.2f\t\n", z.Name, z.Apps, n, q(gaps, 0), q(gaps, .5), q(gaps, .95), q(gaps, 1),
			exact, q(widths, .5), q(widths, .95), q(ms, .5), q(ms, .95), q(ms, .5)*1e3/float64(z.GPUs))
	}
	w.Flush()
	if solvers == "" {
		return nil
	}
	return compare(out, solvers, limit, files)
}

// compare gives the rounds to the solvers, which live in an environment of
// their own.
func compare(out, solvers string, limit int, files []string) error {
	env := filepath.Join(filepath.Dir(out), "solvers")
	install := exec.Command("tests/solvers/install", env)
	install.Stdout, install.Stderr = os.Stderr, os.Stderr
	if err := install.Run(); err != nil {
		return fmt.Errorf("install solvers: %w", err)
	}
	fmt.Println()
	args := append([]string{"tests/solvers/compare.py", "--limit", strconv.Itoa(limit), "--solvers", solvers, "--json", filepath.Join(out, "solvers.json")}, files...)
	c := exec.Command(filepath.Join(env, "bin", "python"), args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

// The instance format is described in tests/solvers/README.md.
type (
	instance struct {
		Name  string     `json:"name"`
		Ours  ours       `json:"ours"`
		Nodes []node     `json:"nodes"`
		Kinds []kind     `json:"kinds"`
		Rows  []row      `json:"rows"`
		Bids  [][]option `json:"bids"`
	}
	ours struct {
		Welfare float64 `json:"welfare"`
		Bound   float64 `json:"bound"`
		Total   float64 `json:"total_s"`
	}
	node struct {
		Rack int   `json:"rack"`
		GPUs int   `json:"gpus"`
		CPUs int   `json:"cpus"`
		Mem  int64 `json:"mem"`
	}
	kind struct {
		Nodes  int   `json:"nodes"`
		GPUs   int   `json:"gpus"`
		CPUs   int   `json:"cpus"`
		Mem    int64 `json:"mem"`
		Levels bool  `json:"levels"`
	}
	row struct {
		Capacity float64   `json:"capacity"`
		Wide     []float64 `json:"wide"`
		Tight    []float64 `json:"tight"`
	}
	option struct {
		Value float64     `json:"value"`
		Wide  map[int]int `json:"wide,omitempty"`
		Tight map[int]int `json:"tight,omitempty"`
	}
)

// write states the round for solvers: the same bids, nodes and rows.
func write(path, name string, p *auction.Proof, took time.Duration) error {
	in := instance{Name: name, Ours: ours{p.Welfare, p.Bound, took.Seconds()}}
	racks := map[string]int{}
	for _, n := range p.Nodes {
		if _, ok := racks[n.Rack]; !ok {
			racks[n.Rack] = len(racks)
		}
		gpus := 0
		for _, g := range n.GPUs {
			gpus += g
		}
		in.Nodes = append(in.Nodes, node{racks[n.Rack], gpus, n.CPUs, n.MemMiB})
	}
	for _, k := range p.Kinds {
		in.Kinds = append(in.Kinds, kind{k.Nodes, k.Need.GPUs, k.Need.CPUs, k.Need.MemMiB, k.Levels})
	}
	for i := range p.Rows {
		r := row{Capacity: p.Rows[i].Capacity}
		for k := range p.Kinds {
			r.Wide = append(r.Wide, p.Rows[i].Use(&p.Kinds[k], false))
			r.Tight = append(r.Tight, p.Rows[i].Use(&p.Kinds[k], p.Kinds[k].Levels))
		}
		in.Rows = append(in.Rows, r)
	}
	for i := range p.Bids {
		in.Bids = append(in.Bids, options(&p.Bids[i]))
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o644)
}

func options(b *auction.ProofBid) []option {
	var out []option
	counts := map[int]int{}
	add := func(k int) {
		for tight, rho := range b.Rho[k] {
			o := option{Value: -b.Weight * math.Log(rho), Wide: map[int]int{}, Tight: map[int]int{}}
			for kind, n := range counts {
				if kind == b.Choice {
					o.Tight[kind], n = tight, n-tight
				}
				o.Wide[kind] = n
			}
			out = append(out, o)
		}
	}
	add(0)
	k := 0
	for _, s := range b.Steps {
		for range s.Times {
			for _, q := range s.Add {
				counts[q]++
			}
			if s.Drop >= 0 {
				counts[s.Drop]--
			}
			k++
			add(k)
		}
	}
	return out
}
