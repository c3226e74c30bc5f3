// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"golang.org/x/sys/unix"
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
	var owners []string
	var forget string
	c := &cobra.Command{
		Use:   "serve",
		Short: "run the core: auctions, leases, ledger",
		Long: "serve runs the core. The plugin in slurmctld or the ResourceManager starts it by itself; run it by hand or\n" +
			"by systemd to keep it apart from them. They then attach to the socket; one core serves a Slurm and a YARN\n" +
			"cluster at once, and a machine that is in both is one node.",
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
			if forget != "" {
				return forgetHost(state, forget)
			}
			uids, err := uidsOf(owners)
			if err != nil {
				return logged(err)
			}
			return logged(serve(cfg, state, uids))
		},
	}
	c.Flags().StringVar(&config, "config", "/etc/slurm/themis.toml", "themis.toml, for YARN /etc/hadoop/themis.toml; a missing file means all defaults")
	c.Flags().StringVar(&state, "state", stateDir, "folder of the ledger and of a launched core's socket")
	c.Flags().StringSliceVar(&owners, "owner", nil, "user of the host daemon (SlurmUser, or the ResourceManager's): a name or uid, or several;\nthey and root may observe (default: the user who runs this)")
	c.Flags().StringVar(&forget, "forget", "", "strike a host out of the ledger that is gone for good, \"slurm\" or \"yarn\", and exit;\nuntil then its nodes take no new leases")
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

// uidsOf looks users up; none stands for whoever runs this.
func uidsOf(users []string) ([]uint32, error) {
	if len(users) == 0 {
		return []uint32{uint32(os.Getuid())}, nil
	}
	uids := make([]uint32, len(users))
	for i, name := range users {
		id := name
		if u, err := user.Lookup(name); err == nil {
			id = u.Uid
		}
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("--owner %s: no such user; give a name or a uid", name)
		}
		uids[i] = uint32(n)
	}
	return uids, nil
}

// forgetHost needs the ledger for itself: no core may run.
func forgetHost(state, kind string) error {
	led, err := ledger.Open(filepath.Join(state, "ledger"))
	if errors.Is(err, ledger.ErrInUse) {
		return fmt.Errorf("%w: stop the core first", err)
	} else if err != nil {
		return err
	}
	defer led.Close()
	return led.ForgetHost(kind)
}

// closeInherited closes what the host daemon had open without O_CLOEXEC when it
// launched this process: the JVM and slurmctld rely on their own children closing
// it. A core that kept the write end of a pipe to another child would keep the
// host waiting for that child's end of file.
func closeInherited() {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range fds {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		// All that this process has opened itself is close-on-exec.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

func serve(cfg service.Config, state string, owners []uint32) error {
	shim, launched := bridge.Launched()
	if launched {
		owners = []uint32{shim}
		closeInherited()
	}
	log := newLog(cfg.Serve.Log, launched)
	core, err := open(cfg, state, owners, log)
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
	server := bridge.NewServer(core, owners)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(lis) }()
	defer stop(server)
	log.Infof("core %s serves on %s, ledger in %s", version, path, state)
	if launched {
		go dieWithParent()
		bridge.ServeLaunched(core, shim)
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
func open(cfg service.Config, state string, owners []uint32, log *logrus.Logger) (*service.Service, error) {
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		core, err := service.Open(cfg, filepath.Join(state, "ledger"), owners, log.Errorf)
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
