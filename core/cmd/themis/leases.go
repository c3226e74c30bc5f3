// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"themis/bridge"
	"themis/bridge/pb"
)

func newLeases(a *app) *cobra.Command {
	var last uint32
	c := &cobra.Command{
		Use:   "leases",
		Short: "who holds which GPUs until when; with --last also leases that are over",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			var leases []bridge.Lease
			if done, err := a.get(&pb.View{Name: "leases", Limit: last}, &leases); done || err != nil {
				return err
			}
			table("LEASE JOB APP STATE GPUS GRANTED STARTED EXPIRES ENDED RENEWED REASON", func(row func(...any)) {
				for _, l := range leases {
					row(l.ID, l.Job, l.App, l.State, places(l.Places), clock(&l.Granted), clock(l.Started), clock(l.Expires), clock(l.Ended), l.Renewals, dash(l.Reason))
				}
			})
			return nil
		},
	}
	c.Flags().Uint32Var(&last, "last", 0, "show the newest N leases of the ledger, live or over")
	return c
}

func newLedger(a *app) *cobra.Command {
	var last uint32
	var places bool
	c := &cobra.Command{
		Use:   "ledger [JOB]",
		Short: "what ended jobs made of their GPUs, what they waited for, and how long they were thought to take",
		Long: `ledger shows a line for each job that has ended, the newest first.

GPU_H   GPU-hours under leases
BUSY    share of that time in which some kernel ran, as far as the nodes' health
        checks looked (themis gpus --check --slurm); - if they did not
LEASES  that it ran under, one after another; RENEWED is how often they were
WAITED  for the host (dependencies, limits, a hold), for the auction, for GPUs it
        had won to come free, for its host to start it
THOUGHT its run time as estimated when it came, and what that was made of
TOOK    its run time as it was, as if always at its best place, less what was lost

With --places it shows instead how fast jobs of a user's model= are in wider places,
relative to a slot, and on GPUs of each type, relative to the mean one of the cluster,
as jobs that reported their progress in two places showed. A job that says place= or
speed= is taken at its word. In brackets: how many measurements, their mean and spread.`,
		Example: "  themis ledger --last 100\n  themis ledger 1234 --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if places {
				return a.printPlaces()
			}
			v := pb.View{Name: "ledger", Limit: last}
			if len(args) > 0 {
				v.Job = args[0]
			}
			var past []bridge.Past
			if done, err := a.get(&v, &past); done || err != nil {
				return err
			}
			table("JOB APP GPUS ENDED OUTCOME GPU_H BUSY LEASES RENEWED THOUGHT TOOK WAITED", func(row func(...any)) {
				for _, p := range past {
					busy := "-"
					if p.Used != nil {
						busy = fmt.Sprintf("%.0f%%", 100*p.Used.Busy)
					}
					row(p.Job, p.App, p.GPUs, clock(&p.Ended), p.Outcome, p.Leased/3600, busy, p.Leases, p.Renewals,
						span(p.Estimate)+" ("+p.Source+")", span(p.Took), dash(waitedWords(p.Waited)))
				}
			})
			return nil
		},
	}
	c.Flags().Uint32Var(&last, "last", 20, "show the newest N jobs")
	c.Flags().BoolVar(&places, "places", false, "show how fast jobs are in wider places and by GPU type, as measured")
	return c
}

func (a *app) printPlaces() error {
	var measured []bridge.Measured
	if done, err := a.get(&pb.View{Name: "places"}, &measured); done || err != nil {
		return err
	}
	cell := func(v float64, n int, mean, deviation float64) string {
		if n == 0 {
			return fmt.Sprintf("%.2f", v)
		}
		return fmt.Sprintf("%.2f (%d: %.2f±%.2f)", v, n, mean, deviation)
	}
	table("USER MODEL SLOT MACHINE RACK CLUSTER TYPES", func(row func(...any)) {
		for _, m := range measured {
			cells := []any{m.User, m.Model}
			for _, f := range m.Levels {
				cells = append(cells, cell(f.S, f.N, f.Mean, f.Deviation))
			}
			var types []string
			for _, f := range m.Types {
				types = append(types, f.Type+" "+cell(f.Speed, f.N, f.Mean, f.Deviation))
			}
			row(append(cells, dash(strings.Join(types, ", ")))...)
		}
	})
	return nil
}

// waitedWords name the causes, in the order in which a job meets them.
func waitedWords(w bridge.Waited) string {
	var out []string
	for _, cause := range []struct {
		seconds float64
		name    string
	}{{w.Host, "host"}, {w.Auction, "auction"}, {w.Gather, "GPUs to come free"}, {w.Start, "start"}} {
		if cause.seconds >= 0.5 {
			out = append(out, span(cause.seconds)+" "+cause.name)
		}
	}
	return strings.Join(out, ", ")
}
