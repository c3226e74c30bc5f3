// SPDX-License-Identifier: Apache-2.0

package main

import (
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
