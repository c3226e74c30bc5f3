// SPDX-License-Identifier: Apache-2.0

// Command demo starts a private cluster with fake GPUs, submits some users' work
// to it, shows what the auction makes of it, then plays the same submissions on
// the stock scheduler and prints both side by side. Its argument says which host:
// slurm or yarn. It ends all that it started, also on Ctrl-C. With KEEP=1 the
// cluster under Themis stays up until Ctrl-C, for submissions by hand.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"themis/bridge"
)

func main() {
	demos := map[string]func(context.Context) error{"slurm": slurm, "yarn": yarn}
	if len(os.Args) != 2 || demos[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: demo slurm|yarn")
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := demos[os.Args[1]](ctx); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted; all that was started has been stopped")
		}
		fmt.Fprintln(os.Stderr, "demo: "+err.Error())
		cancel()
		os.Exit(1)
	}
}

// stopwatch is when a pass began.
type stopwatch time.Time

func (s stopwatch) say(format string, args ...any) {
	fmt.Printf("%5.1fs  %s\n", time.Since(time.Time(s)).Seconds(), fmt.Sprintf(format, args...))
}

// result is when an app's first job was submitted and its last one ended; a zero
// end is never.
type result struct{ submit, end time.Time }

func (r result) took() string {
	if r.end.IsZero() {
		return "never"
	}
	return fmt.Sprintf("%.0f s", r.end.Sub(r.submit).Seconds())
}

// references asks the core what each app's fair share would have taken, once it
// has seen all of them end. That does not depend on the policy, so it serves for
// both passes.
func references(themis func(args ...string) (string, error)) (map[string]bridge.App, error) {
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		raw, err := themis("apps", "--json")
		if err != nil {
			return nil, err
		}
		var apps []bridge.App
		if err := json.Unmarshal([]byte(raw), &apps); err != nil {
			return nil, err
		}
		out, open := map[string]bridge.App{}, ""
		for _, a := range apps {
			_, name, _ := strings.Cut(a.ID, "/")
			out[name] = a
			if a.Reference == nil || a.Ended == nil {
				open = a.ID
			}
		}
		if open == "" {
			return out, nil
		}
		if time.Since(begin) > 10*time.Second {
			return nil, errors.New("the core did not see the end of " + open)
		}
	}
}

func table(with, without map[string]result, refs map[string]bridge.App) {
	names := make([]string, 0, len(refs))
	for n := range refs {
		names = append(names, n)
	}
	sort.Slice(names, func(i, k int) bool { return refs[names[i]].Submit.Before(refs[names[k]].Submit) })
	fmt.Println("\nrho = time to finish on the shared cluster / time on a fair share of it; at most 1: nothing lost by sharing")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "app\tfair share\tThemis\tstock\trho Themis\trho stock\t")
	var worst [2]float64 // under Themis, stock
	for _, n := range names {
		a := refs[n]
		ideal := a.Reference.Sub(a.Submit)
		fmt.Fprintf(w, "%s\t%.0f s\t", a.ID, ideal.Seconds())
		var rhos string
		for i, r := range []result{with[n], without[n]} {
			rho := r.end.Sub(r.submit).Seconds() / ideal.Seconds()
			if r.end.IsZero() {
				rho = math.Inf(1)
			}
			worst[i] = max(worst[i], rho)
			fmt.Fprint(w, r.took()+"\t")
			rhos += number(rho) + "\t"
		}
		fmt.Fprintln(w, rhos)
	}
	fmt.Fprintf(w, "worst\t\t\t\t%s\t%s\t\n", number(worst[0]), number(worst[1]))
	w.Flush()
	fmt.Printf("CPU job: %s with Themis, %s without\n", with[""].took(), without[""].took())
}

func number(rho float64) string {
	if math.IsInf(rho, 1) {
		return "endless"
	}
	return fmt.Sprintf("%.2f", rho)
}
