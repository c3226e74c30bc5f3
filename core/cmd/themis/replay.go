// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"themis/core/service"
	"themis/core/sim"
)

func init() { service.Version = version }

func newReplay(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "replay FILE",
		Short: "decide again what a live core recorded, and compare",
		Long: "replay plays a recording in the simulator's clock: the same snapshots at the same times, under the same\n" +
			"configuration. It fails at the first step that is decided otherwise. A core records if themis.toml has\n" +
			"  [serve]\n  record = \"/var/lib/themis/run.jsonl\"\n" +
			"from its first start on: what it did after a restart rests on its ledger and is skipped.",
		Example: "  themis sim replay /var/lib/themis/run.jsonl",
		Args:    exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			r, err := sim.Replay(f)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if err := a.printReplay(r); err != nil {
				return err
			}
			if r.Difference != nil {
				return fmt.Errorf("step %d is decided otherwise\nhint: recorded by version %s, replayed by %s", r.Difference.Step, r.Version, version)
			}
			return nil
		},
	}
}

func (a *app) printReplay(r *sim.Replayed) error {
	if a.json {
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		return printJSON(raw)
	}
	fmt.Printf("%d steps of version %s: %d grants, %d reclaims", r.Steps, r.Version, r.Grants, r.Reclaims)
	if d := r.Difference; d == nil {
		fmt.Println(", all decided again")
	} else {
		fmt.Printf("\nstep %d (line %d, %s):\n", d.Step, d.Line, d.Time.Format("2006-01-02 15:04:05.000"))
		for _, s := range d.Want {
			fmt.Println("  recorded only: " + s)
		}
		for _, s := range d.Got {
			fmt.Println("  replayed only: " + s)
		}
		if len(d.Want)+len(d.Got) == 0 {
			fmt.Println("  the same in another order")
		}
	}
	if r.Skipped > 0 {
		fmt.Printf("note: %d steps after restarts were skipped: they rest on the core's ledger\n", r.Skipped)
	}
	return nil
}
