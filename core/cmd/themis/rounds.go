// SPDX-License-Identifier: Apache-2.0

package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"themis/bridge"
	"themis/bridge/pb"
	"themis/core/auction"
	"themis/core/ledger"
)

func newRounds(a *app) *cobra.Command {
	var last uint32
	var verify bool
	var file string
	c := &cobra.Command{
		Use:   "rounds [ROUND]",
		Short: "the latest auctions: bids, winners, payments, and how good they provably are",
		Long: "rounds shows auctions. With --verify the round's allocation and its bound are checked again from what\n" +
			"the ledger keeps of it: that it fits the nodes, that gangs are whole, that each app got a first part of\n" +
			"what it asked for, and that no allocation whatever has more than the bound. The check runs here, in time\n" +
			"linear in the size of the round, and trusts neither the core nor how the winners were found.",
		Example: "  themis rounds --last 3\n  themis rounds 1207 --verify\n  themis rounds 1207 --verify --ledger /var/lib/themis/ledger/ledger.db",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 || verify && len(args) == 0 {
				return usageError{fmt.Errorf("want one round's number, got %d arguments; see '%s --help'", len(args), c.CommandPath())}
			}
			if file != "" && !verify {
				return usageError{errors.New("--ledger reads a proof: it goes with --verify")}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			view := &pb.View{Name: "rounds", Limit: last}
			if len(args) == 1 {
				if n, err := strconv.ParseUint(args[0], 10, 63); err != nil || n == 0 {
					return usageError{fmt.Errorf("%q is not the number of a round", args[0])}
				}
				view.Job = args[0]
			}
			if verify {
				return a.verify(args[0], file)
			}
			var rounds []bridge.Round
			if done, err := a.get(view, &rounds); done || err != nil {
				return err
			}
			for i := range rounds {
				if i > 0 {
					fmt.Println()
				}
				printRound(&rounds[i])
			}
			return nil
		},
	}
	c.Flags().Uint32Var(&last, "last", 5, "how many rounds, newest first")
	c.Flags().BoolVar(&verify, "verify", false, "check the round's allocation and bound again")
	c.Flags().StringVar(&file, "ledger", "", "read the proof from this ledger file, without a core")
	return c
}

func printRound(r *bridge.Round) {
	fmt.Printf("round %d at %s: %d GPUs on offer, apps: %d, log welfare %.3f (%s), %.1f ms\n", r.ID, clock(&r.At), r.Free, r.Apps, r.Welfare, quality(r), r.Took*1e3)
	table("APP IN RHO AFTER WANTED WON KEEPS SLACK NEXT_GAINS ITS_PRICE GPUS", func(row func(...any)) {
		for _, b := range r.Bids {
			next, price := "-", "-"
			if b.Gain > 0 {
				next, price = percent(b.Gain), percent(b.Price)
			}
			row(b.App, map[bool]string{true: "yes", false: "rest"}[b.In], b.Rho, b.After, b.Wanted, b.Won, keeps(&b), signed(b.Slack), next, price, places(b.Places))
		}
	})
}

// quality says how far the allocation may be from the best one.
func quality(r *bridge.Round) string {
	gap := (r.Bound - r.Welfare) / float64(max(r.Participants, 1))
	switch {
	case r.Exact:
		return "the best there is"
	case gap < 5e-6:
		return "proven best"
	}
	return fmt.Sprintf("proven within %s per app of the best", percent(gap))
}

// percent shows a difference of logarithms as people say it.
func percent(log float64) string {
	p := 100 * math.Expm1(log)
	if p < 0.1 {
		return fmt.Sprintf("%.2g%%", p)
	}
	return fmt.Sprintf("%.1f%%", p)
}

// keeps is the share of its winnings that an app is left with, with the range
// that is certain if it is not exact.
func keeps(b *bridge.Bid) string {
	switch {
	case b.Won == 0:
		return "-"
	case b.In && b.Payment-b.PaymentLow > 0.005:
		return fmt.Sprintf("%.2f (%.2f+)", b.Payment, b.PaymentLow)
	}
	return fmt.Sprintf("%.2f", b.Payment)
}

// signed is span of a time that may be negative.
func signed(seconds float64) string {
	if seconds < 0 {
		return "-" + span(-seconds)
	}
	return span(seconds)
}

func (a *app) verify(round, file string) error {
	raw, err := a.proof(round, file)
	if err != nil {
		return err
	}
	var p auction.Proof
	if err := json.Unmarshal(raw, &p); err != nil {
		return fmt.Errorf("proof of round %s: %w", round, err)
	}
	v, err := auction.Verify(&p)
	if err != nil {
		return fmt.Errorf("round %s does not hold: %w", round, err)
	}
	if a.json {
		out, err := json.Marshal(map[string]any{"round": json.Number(round), "holds": true, "bids": v.Bids, "nodes": len(p.Nodes), "prices": len(p.Rows),
			"welfare": v.Welfare, "bound": v.Bound, "gap_per_bid": v.Gap(), "exact": p.Exact})
		if err != nil {
			return err
		}
		return printJSON(out)
	}
	fmt.Printf("round %s holds: %d bids, %d nodes, %d prices\n", round, v.Bids, len(p.Nodes), len(p.Rows))
	fmt.Printf("log welfare %.6f, no allocation has more than %.6f: within %s per app of the best\n", v.Welfare, v.Bound, percent(max(v.Gap(), 0)))
	if p.Exact {
		fmt.Println("besides, the core searched every allocation and found none better (that is not checked here)")
	}
	return nil
}

func (a *app) proof(round, file string) ([]byte, error) {
	if file == "" {
		return a.fetch(&pb.View{Name: "proof", Job: round})
	}
	n, err := strconv.ParseUint(round, 10, 63)
	if err != nil {
		return nil, usageError{fmt.Errorf("%q is not the number of a round", round)}
	}
	raw, err := ledger.ReadProof(file, n)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("ledger %s keeps no proof of round %s", file, round)
	} else if err != nil {
		return nil, fmt.Errorf("ledger %s: %w", file, err)
	}
	return raw, nil
}
