// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"themis/bridge"
	"themis/bridge/pb"
)

func newStatus(a *app) *cobra.Command {
	var internals bool
	c := &cobra.Command{
		Use:   "status",
		Short: "the cluster at a glance: apps by rho, GPUs, next auction",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			view := "status"
			if internals {
				view = "internals"
			}
			var s bridge.Status
			if done, err := a.get(&pb.View{Name: view}, &s); done || err != nil {
				return err
			}
			printStatus(&s)
			return nil
		},
	}
	c.Flags().BoolVar(&internals, "internals", false, "also show the time spent in each hook of the host and in the core")
	return c
}

func printStatus(s *bridge.Status) {
	fmt.Printf("cluster %s: %d nodes, %d GPUs, %d in use, %d granted; %d jobs run, %d wait; max rho %.2f\n",
		dash(s.Cluster), s.Nodes, s.GPUs, s.GPUsUsed, s.GPUsWon, s.Running, s.Waiting, s.MaxRho)
	fmt.Printf("next auction: %s", clock(s.NextRound))
	if r := s.LastRound; r != nil {
		fmt.Printf("; last: round %d at %s, %d GPUs on offer", r.ID, clock(&r.At), r.Free)
	}
	fmt.Println()
	for _, h := range s.Hosts {
		switch {
		case h.Silent && len(s.Hosts) > 1:
			fmt.Printf("warning: %s cluster %s is silent: its nodes take no new leases\n", h.Kind, h.Cluster)
		case h.SeenAgo > 30:
			fmt.Printf("warning: %s cluster %s was last heard of %s ago\n", h.Kind, h.Cluster, span(h.SeenAgo))
		}
	}
	for k, g := range s.Types {
		fmt.Printf("%s%s %d of %d in use", []string{"types: ", ", "}[min(k, 1)], cmp.Or(g.Type, "untyped"), g.Used, g.GPUs)
	}
	if len(s.Types) > 0 {
		fmt.Println()
	}
	for k, i := range s.Idle[:min(len(s.Idle), linesMost)] {
		fmt.Printf("%-5s job %s (%s): %s\n", []string{"idle:", ""}[min(k, 1)], i.Job, i.App, idleWords(&i))
	}
	if more := len(s.Idle) - linesMost; more > 0 {
		fmt.Printf("      and %d more jobs\n", more)
	}
	fmt.Println()
	printApps(s.Apps)
	if in := s.Internals; in != nil {
		if len(in.Hooks) > 0 { // a ResourceManager shows none
			fmt.Println()
			table("HOOK CALLS MEAN_US MAX_US TOTAL_S", func(row func(...any)) {
				for _, h := range in.Hooks {
					row(h.Name, h.Calls, h.Mean*1e6, h.Max*1e6, h.Total)
				}
			})
		}
		fmt.Printf("\ncore up since %s, %d snapshots; decision %.1f ms (max %.1f), ledger write %.1f ms (max %.1f)\nledger %s\n",
			clock(&in.Since), in.Snapshots, in.StepLast*1e3, in.StepMax*1e3, in.WriteLast*1e3, in.WriteMax*1e3, in.LedgerPath)
	}
}

func idleWords(i *bridge.Idle) string {
	return fmt.Sprintf("%d of %d GPUs have done nothing since %s", i.GPUs, i.Of, clock(&i.Since))
}

func newApps(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "apps",
		Short: "all apps with their rho, the worst off first; ended ones last",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			var apps []bridge.App
			if done, err := a.get(&pb.View{Name: "apps"}, &apps); done || err != nil {
				return err
			}
			printApps(apps)
			return nil
		},
	}
}

func printApps(apps []bridge.App) {
	table("APP RHO GPUS RUN WAIT DONE LEFT SUBMITTED REFERENCE ENDED", func(row func(...any)) {
		for _, p := range apps {
			row(p.ID, p.Rho, p.GPUs, p.Running, p.Waiting, p.Done, span(p.WorkLeft)+"*GPU", clock(&p.Submit), clock(p.Reference), clock(p.Ended))
		}
	})
}
