// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"themis/bridge"
)

func newReport(a *app) *cobra.Command {
	var job string
	var dryRun bool
	values := map[string]*string{}
	keys := []string{"progress", "remaining", "runtime", "checkpoint", "speedup", "speed", "place", "order"}
	c := &cobra.Command{
		Use:   "report",
		Short: "tell the auction how far a running job is, or how it speeds up",
		Long: "report restates what a job declared, from inside the job or from outside, as often as more is\n" +
			"known: a tuner may give a new curve at any time. What is not restated stays, but for --progress\n" +
			"and --remaining, of which the latest counts, and which a new --runtime clears. It is carried by\n" +
			"'scontrol update job comment', so only those who may change the job can report for it. On YARN\n" +
			"application masters report their progress anyway, and the rest is said once, by application tags.",
		Example: "  themis report --progress 0.43            # inside the job: $SLURM_JOB_ID says which\n" +
			"  themis report --job 1234 --remaining 2h10m\n" +
			"  themis report --job 1234 --speedup 1:1,2:1.9,4:3.5,8:6.1",
		Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if job == "" {
				return usageError{errors.New("no job: give --job, or run it inside one (SLURM_JOB_ID)")}
			}
			var said []string
			for _, k := range keys {
				if c.Flags().Changed(k) {
					said = append(said, k+"="+*values[k])
				}
			}
			if len(said) == 0 {
				return usageError{errors.New("nothing to report: give one of --" + strings.Join(keys, ", --"))}
			}
			if _, err := bridge.ParseHint("themis: " + strings.Join(said, " ")); err != nil {
				return usageError{err}
			}
			return report(job, said, dryRun, a.json)
		},
	}
	c.Flags().StringVar(&job, "job", os.Getenv("SLURM_JOB_ID"), "job id")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print the new comment, change nothing")
	usage := map[string]string{"progress": "share of the work done, above 0 and at most 1", "remaining": "time left, such as 2h10m",
		"runtime": "time of the whole job at its smallest form", "checkpoint": "how often it saves its state",
		"speedup": "speed by number of GPUs, such as 1:1,2:1.9,4:3.5", "speed": "speed by GPU type, such as a100:1,v100:.45", "place": "speed in a slot, on a machine, in a rack, in the cluster, such as 1,.9,.7,.5",
		"order": "which of an app's jobs come first in what it wins: submit, short, long, small or large"}
	for _, k := range keys {
		values[k] = c.Flags().String(k, "", usage[k])
	}
	return c
}

func report(job string, said []string, dryRun, asJSON bool) error {
	if strings.HasPrefix(job, "application_") {
		return usageError{errors.New("an application of YARN is not reported for: its master's progress counts, and the tags that it was submitted with\nhint: application tags themis:runtime=3h, themis:checkpoint=10m and so on, one each")}
	}
	out, err := scontrol("show", "job", job, "--oneliner")
	if err != nil {
		return err
	}
	comment := restate(commentOf(out), said)
	if !dryRun {
		if _, err := scontrol("update", "jobid="+job, "comment="+comment); err != nil {
			return err
		}
	}
	if asJSON {
		return printJSON(fmt.Appendf(nil, `{"job":%q,"comment":%q,"changed":%t}`, job, comment, !dryRun))
	}
	if dryRun {
		fmt.Println(comment)
	}
	return nil
}

// commentOf finds the comment in scontrol's line; the field after it is known.
func commentOf(line string) string {
	_, rest, ok := strings.Cut(line, " Comment=")
	if !ok {
		return ""
	}
	for _, next := range []string{" Power=", " NtasksPerTRES:", " TresPerNode=", " TresPerJob=", " TresPerTask=", " MailUser=", " StdErr="} {
		rest, _, _ = strings.Cut(rest, next)
	}
	return strings.TrimSpace(rest)
}

// restate puts what is said into the comment's hint, keeping the rest of the
// hint and everything around it.
func restate(comment string, said []string) string {
	from, to, found := bridge.HintAt(comment)
	if !found {
		if comment != "" && !strings.HasSuffix(comment, ";") {
			comment += ";"
		}
		return strings.TrimSpace(comment + " themis: " + strings.Join(said, " "))
	}
	replaced := map[string]bool{}
	for _, s := range said {
		key, _, _ := strings.Cut(s, "=")
		replaced[key] = true
	}
	if replaced["progress"] || replaced["remaining"] || replaced["runtime"] { // one truth at a time
		replaced["progress"], replaced["remaining"] = true, true
	}
	var words []string
	for _, w := range strings.Fields(comment[from+len("themis:") : to]) {
		if key, _, _ := strings.Cut(w, "="); !replaced[key] {
			words = append(words, w)
		}
	}
	return comment[:from] + "themis: " + strings.Join(append(words, said...), " ") + comment[to:]
}

func scontrol(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "scontrol", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("scontrol %s: %s", args[0], strings.TrimSpace(string(out)+" "+err.Error()))
	}
	return string(out), nil
}
