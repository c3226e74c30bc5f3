// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

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

func newRounds(a *app) *cobra.Command {
	var last uint32
	c := &cobra.Command{
		Use:   "rounds",
		Short: "the latest auctions: bids, winners, payments",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			var rounds []bridge.Round
			if done, err := a.get(&pb.View{Name: "rounds", Limit: last}, &rounds); done || err != nil {
				return err
			}
			for i, r := range rounds {
				if i > 0 {
					fmt.Println()
				}
				how := "exact"
				if !r.Exact {
					how = fmt.Sprintf("within %.3f of the best", r.Bound-r.Welfare)
				}
				fmt.Printf("round %d at %s: %d GPUs on offer, apps: %d, log welfare %.3f (%s), %.1f ms\n", r.ID, clock(&r.At), r.Free, r.Apps, r.Welfare, how, r.Took*1e3)
				table("APP IN RHO AFTER WANTED WON LEASE_SHARE GPUS", func(row func(...any)) {
					for _, b := range r.Bids {
						row(b.App, map[bool]string{true: "yes", false: "rest"}[b.In], b.Rho, b.After, b.Wanted, b.Won, b.Payment, places(b.Places))
					}
				})
			}
			return nil
		},
	}
	c.Flags().Uint32Var(&last, "last", 5, "how many rounds, newest first")
	return c
}
