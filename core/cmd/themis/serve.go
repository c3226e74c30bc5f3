// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"google.golang.org/grpc"

	"themis/bridge"
	"themis/core/ledger"
	"themis/core/service"
)

// lockWait is how long a new core waits for one that is about to end.
const lockWait = 5 * time.Second

func newServe() *cobra.Command {
	var config, state string
	var check bool
	var owner uint32
	c := &cobra.Command{
		Use:   "serve",
		Short: "run the core: auctions, leases, ledger",
		Long: "serve runs the core. slurmctld and the ResourceManager start it by themselves; run it by hand or by\n" +
			"systemd to keep it apart from them, and they attach to its socket.",
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := service.LoadConfig(config)
			if err != nil {
				return logged(err)
			}
			if check {
				fmt.Println("configuration is fine")
				return nil
			}
			return logged(serve(cfg, state, owner))
		},
	}
	c.Flags().StringVar(&config, "config", "/etc/slurm/themis.toml", "themis.toml, for YARN /etc/hadoop/themis.toml; a missing file means all defaults")
	c.Flags().StringVar(&state, "state", stateDir, "folder of the ledger and of a launched core's socket")
	c.Flags().Uint32Var(&owner, "owner", uint32(os.Getuid()), "uid of the host daemon (SlurmUser, or yarn); it and root may observe")
	c.Flags().BoolVar(&check, "check", false, "check the configuration and exit")
	return c
}

// logged also writes the error where a launching shim looks for it.
func logged(err error) error {
	if _, launched := bridge.Launched(); launched && err != nil {
		fmt.Fprintf(os.Stderr, "[ERROR] %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return err
}

func serve(cfg service.Config, state string, owner uint32) error {
	shim, launched := bridge.Launched()
	if launched {
		owner = shim
	}
	log := newLog(cfg.Serve.Log, launched)
	core, err := open(cfg, state, owner, log)
	if err != nil {
		return err
	}
	defer core.Close()
	path := cfg.Serve.Socket
	if path == "" {
		path = attachedSocket
		if launched {
			path = filepath.Join(state, socketName)
		}
	}
	lis, err := bridge.Listen(path)
	if err != nil {
		return err
	}
	server := bridge.NewServer(core, owner)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(lis) }()
	defer stop(server)
	log.Infof("core %s serves on %s, ledger in %s", version, path, state)
	if launched {
		go dieWithParent()
		bridge.ServeLaunched(core, owner)
		return nil
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// open waits a little for a core that is on its way out: after its host was
// killed and started again, the old core notices within a second.
func open(cfg service.Config, state string, owner uint32, log *logrus.Logger) (*service.Service, error) {
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		core, err := service.Open(cfg, filepath.Join(state, "ledger"), owner, log.Errorf)
		if !errors.Is(err, ledger.ErrInUse) || time.Since(begin) > lockWait {
			return core, err
		}
	}
}

// dieWithParent ends a launched core whose host daemon is gone.
func dieWithParent() {
	for parent := os.Getppid(); ; time.Sleep(500 * time.Millisecond) {
		if os.Getppid() != parent {
			os.Exit(0)
		}
	}
}

func stop(s *grpc.Server) {
	done := make(chan struct{})
	go func() { s.GracefulStop(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Second):
		s.Stop()
	}
}

// newLog writes to stderr; a launched core's lines begin with their level, as
// its shim expects.
func newLog(level string, launched bool) *logrus.Logger {
	log := logrus.New()
	log.SetLevel(map[string]logrus.Level{"error": logrus.ErrorLevel, "info": logrus.InfoLevel, "debug": logrus.DebugLevel}[level])
	if launched {
		log.SetFormatter(bracketed{})
	}
	return log
}

type bracketed struct{}

func (bracketed) Format(e *logrus.Entry) ([]byte, error) {
	return fmt.Appendf(nil, "[%s] %s\n", strings.ToUpper(e.Level.String()), strings.ReplaceAll(e.Message, "\n", "; ")), nil
}

// newMan writes a man page per command, for packages.
func newMan(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "write a man page for each command into a folder",
		Hidden: true,
		Args:   exactly("DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root.DisableAutoGenTag = true
			date := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
			return doc.GenManTree(root, &doc.GenManHeader{Title: "THEMIS", Section: "1", Source: "themis " + version, Date: &date}, args[0])
		},
	}
}
