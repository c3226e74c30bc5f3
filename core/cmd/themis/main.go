// SPDX-License-Identifier: Apache-2.0

// Command themis shows and runs finish-time-fair GPU scheduling. Output for
// people goes to stdout as plain tables, or as JSON with --json; errors go to
// stderr in lower case with a hint at what to do.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no core can be reached,
// 4 no such job. Of `themis gpus`: 5 no NVML here, 6 a GPU is broken, 7 something
// failed that may pass, 8 gres.conf differs.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"themis/bridge"
	"themis/bridge/pb"
)

const (
	exitFailed    = 1
	exitUsage     = 2
	exitNoCore    = 3
	exitNoJob     = 4
	exitNoNVML    = 5
	exitBroken    = 6
	exitTransient = 7
	exitDiffers   = 8
	answerLimit   = 10 * time.Second
)

// version is set by the build.
var version = "devel"

// usageError marks an error of how the command was called.
type usageError struct{ error }

func main() {
	root := newRoot()
	err := root.Execute()
	if err == nil {
		return
	}
	if said := describe(err); said != "" {
		fmt.Fprintln(os.Stderr, "themis: "+said)
	}
	os.Exit(exitCode(err))
}

func newRoot() *cobra.Command {
	app := &app{}
	root := &cobra.Command{
		Use:           "themis",
		Short:         "finish-time-fair GPU scheduling for Slurm and YARN",
		Long:          "themis shows how GPUs are auctioned on this cluster: which app is how well off (rho),\nwhy a job waits and when it will run, who holds which lease and until when.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
	}
	root.PersistentFlags().BoolVar(&app.json, "json", false, "print JSON instead of tables")
	root.PersistentFlags().StringVar(&app.socket, "socket", "", "the core's socket (default: $THEMIS_SOCKET, /run/themis/themis.sock, as slurm.conf implies, or /var/lib/themis/themis.sock)")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see '%s --help'", err, c.CommandPath())}
	})
	root.AddCommand(newStatus(app), newExplain(app), newApps(app), newLeases(app), newLedger(app), newRounds(app), newReport(app), newSim(app), newGPUs(app), newServe(), newMan(root))
	return root
}

// app is what the query commands share.
type app struct {
	json   bool
	socket string
}

// get asks the core for a view and decodes it; with --json it prints the
// core's own answer instead and returns done.
func (a *app) get(v *pb.View, out any) (done bool, err error) {
	raw, err := a.fetch(v)
	if err != nil {
		return false, err
	}
	if a.json {
		return true, printJSON(raw)
	}
	return false, json.Unmarshal(raw, out)
}

// restartWait is how long a core that went away is waited for: its host launches
// another within a second, if the machine is not very busy.
const restartWait = 3 * time.Second

// fetch is the core's answer as it came.
func (a *app) fetch(v *pb.View) ([]byte, error) {
	paths := a.sockets()
	var gone error // of a socket that is there and whose core is not
	for begin := time.Now(); ; time.Sleep(restartWait / 20) {
		var missing error
		for _, path := range paths {
			if _, missing = os.Stat(path); missing != nil {
				continue
			}
			raw, err := ask(path, v)
			if status.Code(err) != codes.Unavailable {
				return raw, err
			}
			gone = fmt.Errorf("%s: %s", path, status.Convert(err).Message())
		}
		if gone == nil {
			return nil, noCore{missing}
		}
		if time.Since(begin) > restartWait {
			return nil, noCore{gone}
		}
	}
}

func ask(socket string, v *pb.View) ([]byte, error) {
	conn, err := bridge.Dial(socket, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	answer, err := pb.NewReadClient(conn).Get(ctx, v)
	return answer.GetJson(), err
}

type noCore struct{ error }

// sockets lists where a core may listen, the likeliest first.
func (a *app) sockets() []string {
	if a.socket != "" {
		return []string{a.socket}
	}
	if s := os.Getenv("THEMIS_SOCKET"); s != "" {
		return []string{s}
	}
	paths := []string{attachedSocket}
	if dir := slurmConfig("StateSaveLocation"); dir != "" {
		paths = append(paths, filepath.Join(dir, "themis", socketName))
	}
	return append(paths, filepath.Join(stateDir, socketName))
}

const (
	// attachedSocket is where a core that systemd runs listens by default.
	attachedSocket = "/run/themis/themis.sock"
	// socketName is that of a launched core's socket in its state folder.
	socketName = "themis.sock"
	// stateDir is that folder unless the host says otherwise: a ResourceManager by
	// themis.state, slurmctld always.
	stateDir = "/var/lib/themis"
)

// slurmConfig asks the running slurmctld for one value of its configuration.
func slurmConfig(key string) string {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "scontrol", "show", "config").Output()
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(out), "\n") {
		if k, v, ok := strings.Cut(line, "="); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func printJSON(raw []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err := out.WriteTo(os.Stdout)
	return err
}

func describe(err error) string {
	var nc noCore
	if errors.As(err, &nc) {
		return fmt.Sprintf("no core answers (%v)\nhint: is slurmctld running with SelectType=select/themis, or the ResourceManager with org.themis.yarn.ThemisPolicy? its log has lines that begin with \"themis:\"; --socket or THEMIS_SOCKET names another place", nc.error)
	}
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

func exitCode(err error) int {
	var nc noCore
	var use usageError
	var own coded
	switch {
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &nc):
		return exitNoCore
	case errors.As(err, &use), strings.HasPrefix(err.Error(), "unknown command"):
		return exitUsage
	case status.Code(err) == codes.NotFound:
		return exitNoJob
	}
	return exitFailed
}

// exactly is cobra.ExactArgs with an error that says what is missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usageError{fmt.Errorf("want %s, got %d arguments; see '%s --help'", strings.Join(append([]string{}, names...), " "), len(args), c.CommandPath())}
		}
		return nil
	}
}
