// SPDX-License-Identifier: Apache-2.0

// Package privateslurm starts a Slurm cluster for one test: munged, slurmctld
// and some slurmd with fake GPUs, on loopback ports, with all state in one
// temporary folder. Several clusters run side by side, as root or as an
// ordinary user, and nothing in /etc is read or touched but the names of
// users. However the test process ends, kill -9 included, the daemons, the
// jobs and the folder go with it.
//
// The package is for tests and benches; the plugins and the themis binary
// come from the module's build folder, or from $THEMIS_BUILD.
package privateslurm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"themis/tests/supervisor"
)

const firstUID = 60001 // of the test users

// Options say what cluster to start. The zero value is stock Slurm with four
// nodes of eight GPUs and the users alice, bob and carol.
type Options struct {
	Nodes     int      // n1, n2, ...; default 4
	GPUs      int      // per node; default 8, -1 for none
	GPUTypes  []string // node i has type i mod their number; default untyped
	CPUs      int      // per node, on two sockets; default 16
	MemoryMiB int      // per node; default 16000
	Users     []string // default alice, bob, carol

	Conf  string            // lines for slurm.conf; they replace ours of the same key
	Files map[string]string // further files beside slurm.conf, such as topology.conf

	Themis     bool     // our plugins in place of the stock ones
	ThemisTOML string   // text of themis.toml
	Env        []string // further environment of slurmctld; LD_PRELOAD is joined

	Keep bool // leave the folder on Close
}

// Cluster is a running cluster. Its methods may be called concurrently.
type Cluster struct {
	Dir       string // all of its files; removed by Close
	RealUsers bool   // test users are users; otherwise accounts of the one user

	opt          Options
	self         *user.User
	host         string
	build        string
	stockPlugins string
	sup          *supervisor.Supervisor
	closing      sync.Once
	closed       error // by the first Close
}

// errPortTaken tells that another process was faster.
var errPortTaken = errors.New("a port was taken meanwhile")

// Start starts a cluster and waits until its nodes are idle.
func Start(ctx context.Context, opt Options) (*Cluster, error) {
	opt = opt.withDefaults()
	for try := 1; ; try++ {
		c, err := start(ctx, opt)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, errPortTaken) || try == 5 {
			return nil, fmt.Errorf("start private slurm: %w", err)
		}
	}
}

// StartT is Start for a test: it ends the cluster with the test, and shows
// the end of slurmctld's log if the test failed.
func StartT(t testing.TB, opt Options) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	c, err := Start(ctx, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of slurmctld's log:\n%s", supervisor.Tail(c.SlurmctldLog(), 60))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (o Options) withDefaults() Options {
	if o.Nodes == 0 {
		o.Nodes = 4
	}
	if o.GPUs == 0 {
		o.GPUs = 8
	}
	o.GPUs = max(o.GPUs, 0)
	if o.CPUs == 0 {
		o.CPUs = 16
	}
	if o.MemoryMiB == 0 {
		o.MemoryMiB = 16000
	}
	if o.Users == nil {
		o.Users = []string{"alice", "bob", "carol"}
	}
	return o
}

func start(ctx context.Context, opt Options) (c *Cluster, err error) {
	c = &Cluster{opt: opt, RealUsers: os.Getuid() == 0, self: currentUser()}
	if c.host, err = os.Hostname(); err != nil {
		return nil, err
	}
	c.host, _, _ = strings.Cut(c.host, ".")
	if c.build, err = supervisor.BuildDir(""); err != nil {
		return nil, err
	}
	if c.stockPlugins, err = stockPlugins(); err != nil {
		return nil, err
	}
	if opt.Themis {
		for _, file := range []string{"bin/themis", "lib/select_themis.so", "lib/priority_themis.so", "lib/job_submit_themis.so"} {
			if _, err := os.Stat(filepath.Join(c.build, file)); err != nil {
				return nil, fmt.Errorf("%w (run make build first)", err)
			}
		}
	}
	if c.Dir, err = os.MkdirTemp("", "themis-slurm-"); err != nil {
		return nil, err
	}
	if c.sup, err = supervisor.Start(c.Dir); err != nil {
		os.RemoveAll(c.Dir)
		return nil, err
	}
	if err = c.boot(ctx); err != nil {
		err = fmt.Errorf("%w%s", err, c.complaints())
		c.sup.Close(opt.Keep)
		return nil, err
	}
	return c, nil
}

// boot writes the files and starts the daemons.
func (c *Cluster) boot(ctx context.Context) error {
	if err := c.writeFiles(); err != nil {
		return err
	}
	if err := c.startMunged(ctx); err != nil {
		return err
	}
	if err := c.launchController(); err != nil {
		return err
	}
	for i := range c.opt.Nodes {
		if err := c.StartNode(nodeName(i)); err != nil {
			return err
		}
	}
	return c.waitIdle(ctx)
}

func (c *Cluster) writeFiles() error {
	if err := os.Chmod(c.Dir, 0o755); err != nil {
		return err
	}
	for _, sub := range []string{"conf", "run", "log", "state", "spool", "dev", "home", "jobs"} {
		if err := os.Mkdir(filepath.Join(c.Dir, sub), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(c.Dir, "jobs"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	if c.RealUsers {
		for i, name := range c.opt.Users {
			home := filepath.Join(c.Dir, "home", name)
			if err := errors.Join(os.Mkdir(home, 0o700), os.Chown(home, firstUID+i, firstUID+i)); err != nil {
				return err
			}
		}
	}
	if err := c.writeNames(); err != nil {
		return err
	}
	ports, err := supervisor.FreePorts(1 + c.opt.Nodes)
	if err != nil {
		return err
	}
	key := make([]byte, 128)
	rand.Read(key)
	files := map[string]string{
		"conf/slurm.conf": c.slurmConf(ports), "conf/gres.conf": c.gresConf(), "conf/cgroup.conf": cgroupConf,
		"run/munge.key": string(key), "themis.toml": c.opt.ThemisTOML,
	}
	for i := range c.opt.GPUs {
		if err := os.Symlink(os.DevNull, fmt.Sprintf("%s/dev/gpu%d", c.Dir, i)); err != nil {
			return err
		}
	}
	for name, text := range c.opt.Files {
		files["conf/"+name] = text
	}
	for name, text := range files {
		mode := os.FileMode(0o644)
		if name == "run/munge.key" {
			mode = 0o600
		}
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(text), mode); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startMunged(ctx context.Context) error {
	run := filepath.Join(c.Dir, "run")
	err := c.daemon("munged", nil, "/usr/sbin/munged", "--foreground", "--force", "--num-threads=2",
		"--socket="+run+"/munge.sock", "--key-file="+run+"/munge.key", "--pid-file="+run+"/munged.pid",
		"--log-file="+c.Dir+"/log/munged.log", "--seed-file="+run+"/munge.seed")
	if err != nil {
		return err
	}
	return c.until(ctx, "munged's socket", func() error {
		_, err := os.Stat(run + "/munge.sock")
		return err
	}, "munged")
}

// daemon starts a daemon; its output goes to log/NAME.out.
func (c *Cluster) daemon(name string, env []string, argv ...string) error {
	return c.sup.Start(name, filepath.Join(c.Dir, "log", name+".out"), joinEnv(c.Env(), env), argv...)
}

func (c *Cluster) launchController() error {
	return c.daemon("slurmctld", c.opt.Env, "/usr/sbin/slurmctld", "-D")
}

// StartController starts a stopped slurmctld and waits until it answers.
func (c *Cluster) StartController() error {
	if err := c.launchController(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := c.until(ctx, "slurmctld's answer", func() error {
		_, err := c.Run(ctx, "scontrol", "ping")
		return err
	}, "slurmctld")
	if err != nil {
		return fmt.Errorf("start slurmctld: %w%s", err, c.complaints())
	}
	return nil
}

// StopController ends slurmctld in order and waits for it.
func (c *Cluster) StopController() error { return c.end("slurmctld", syscall.SIGTERM, 60*time.Second) }

// KillController ends slurmctld by SIGKILL.
func (c *Cluster) KillController() error { return c.end("slurmctld", syscall.SIGKILL, 5*time.Second) }

// ControllerPID is slurmctld's process id, 0 while it does not run.
func (c *Cluster) ControllerPID() int { return c.sup.PID("slurmctld") }

// StartNode starts the slurmd of a node.
func (c *Cluster) StartNode(node string) error {
	return c.daemon("slurmd."+node, nil, "/usr/sbin/slurmd", "-D", "-N", node)
}

// KillNode ends the slurmd of a node by SIGKILL; its jobs run on.
func (c *Cluster) KillNode(node string) error {
	return c.end("slurmd."+node, syscall.SIGKILL, 5*time.Second)
}

func (c *Cluster) end(daemon string, sig syscall.Signal, timeout time.Duration) error {
	if err := c.sup.Signal(daemon, sig); err != nil {
		return err
	}
	if !c.sup.Wait(daemon, timeout) {
		return fmt.Errorf("%s runs on %v after %v", daemon, timeout, sig)
	}
	return nil
}

// Close stops slurmctld in order, kills the rest, jobs included, and removes
// the folder. It may be called twice.
func (c *Cluster) Close() error {
	c.closing.Do(func() {
		if c.ControllerPID() != 0 {
			c.end("slurmctld", syscall.SIGTERM, 10*time.Second)
		}
		c.closed = c.sup.Close(c.opt.Keep)
	})
	return c.closed
}

// waitIdle returns once every node is idle.
func (c *Cluster) waitIdle(ctx context.Context) error {
	daemons := []string{"munged", "slurmctld"}
	for i := range c.opt.Nodes {
		daemons = append(daemons, "slurmd."+nodeName(i))
	}
	return c.until(ctx, "idle nodes", func() error {
		out, err := c.Run(ctx, "sinfo", "-h", "-N", "-p", "debug", "-o", "%T")
		if err == nil && strings.Count(out, "idle") != c.opt.Nodes {
			err = fmt.Errorf("nodes are %s", strings.Join(strings.Fields(out), " "))
		}
		return err
	}, daemons...)
}

// until polls ready until it returns nil, the context ends, or one of the
// daemons does.
func (c *Cluster) until(ctx context.Context, what string, ready func() error, daemons ...string) error {
	for {
		err := ready()
		if err == nil {
			return nil
		}
		for _, d := range daemons {
			status := c.sup.EndedWith(d)
			if status == "" {
				continue
			}
			out, _ := os.ReadFile(filepath.Join(c.Dir, "log", d+".out"))
			if text := string(out); strings.Contains(text, "Address already in use") || strings.Contains(text, "nable to bind") {
				return errPortTaken
			}
			return fmt.Errorf("%s ended with %s:\n%s", d, status, supervisor.Tail(string(out), 20))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no %s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// complaints are the errors in slurmctld's log, on lines of their own.
func (c *Cluster) complaints() string {
	var found []string
	for _, line := range strings.Split(c.SlurmctldLog(), "\n") {
		if strings.Contains(line, "error:") || strings.Contains(line, "fatal:") {
			found = append(found, line)
		}
	}
	if found == nil {
		return ""
	}
	return "\nslurmctld said:\n" + supervisor.Tail(strings.Join(found, "\n"), 10)
}

// SlurmctldLog is the text of slurmctld's log so far.
func (c *Cluster) SlurmctldLog() string {
	data, _ := os.ReadFile(filepath.Join(c.Dir, "log", "slurmctld.log"))
	return string(data)
}

// stockPlugins is the folder of the installed Slurm's plugins.
func stockPlugins() (string, error) {
	for _, program := range []string{"/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%w (run etc/install-packages)", err)
		}
	}
	for _, pattern := range []string{"/usr/lib/*/slurm-wlm", "/usr/lib/*/slurm", "/usr/lib64/slurm"} {
		if found, _ := filepath.Glob(pattern + "/select_cons_tres.so"); found != nil {
			return filepath.Dir(found[0]), nil
		}
	}
	return "", errors.New("no select_cons_tres.so in /usr/lib")
}
