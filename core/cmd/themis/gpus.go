// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/spf13/cobra"

	"themis/core/gpu"
)

// gpusCall is what `themis gpus` was asked for.
type gpusCall struct {
	*app
	gresConf, nodeResources, nodeAttributes bool
	check, yarn, slurm                      bool
	gresFile, library, state                string
	limit, tell                             time.Duration
	rule                                    gpu.Rule
}

func newGPUs(a *app) *cobra.Command {
	q := gpusCall{app: a}
	c := &cobra.Command{
		Use:   "gpus",
		Short: "this machine's GPUs as they are: types, links, sockets, MIG, health",
		Long: `themis gpus reads this machine's GPUs from NVML (libnvidia-ml.so.1, which comes with
the driver) and shows them. It needs no core and changes nothing.

--gres-conf prints the lines of gres.conf(5), and compares them with the file that
is there. --node-resources prints a NodeManager's properties, --node-attributes what
its node-attribute script should, from which the ResourceManager knows their type.

--check judges and prints; it drains no node and resets no GPU. Broken is a GPU
that is lost, requires a reset or answers no call, that has had uncorrectable ECC
errors since the driver was loaded, that has rows to remap (or could not remap
one), or that gres.conf has and NVML does not. Transient is a call that hangs, or
that fails on a GPU that answers others. Each run judges by itself: nothing is
remembered.

--check --slurm acts on the verdict, as HealthCheckProgram of slurm.conf(5) should:
/usr/lib/themis/gpu-health runs it, as a HealthCheckProgram has no arguments. A
broken GPU drains the node at once, something transient after --bad checks in a
row. The reason begins with "themis: ". Jobs on a GPU that is lost, requires a
reset, answers no call or is missing are requeued if they may be; others run on.
The node is undrained after --good healthy checks in a row if it was drained by
this and the reason is still the same word for word; what an admin drained, or
gave another reason, is left alone. Every --tell it writes how busy each GPU was, as
checks saw it, into the node's Extra if nobody else uses that: the core takes it from
there for 'themis status', 'explain' and 'ledger'. Where neither NVML nor a /dev/nvidia file in
gres.conf is, it does nothing. The node is $SLURMD_NODENAME, else this host.

--check --yarn is a NodeManager's health script: if a GPU is broken it prints "ERROR"
and the reason, and ends with 0, as a NodeManager takes any other end for good health.

Exit codes: 0 done, or healthy; 1 failed; 2 wrong usage; 5 no NVML here; 6 broken (--check);
7 transient (--check), or a call of NVML that did not return in time; 8 gres.conf
differs (--gres-conf).`,
		Example: "  themis gpus\n  themis gpus --gres-conf > gres.conf.new\n  themis gpus --check || logger -t themis \"GPUs of $(hostname -s): exit code $?\"\n  themis gpus --check --yarn # as a NodeManager's health script\n  themis gpus --check --slurm # in slurmd's HealthCheckProgram",
		Args:    exactly(),
		RunE:    func(*cobra.Command, []string) error { return q.run() },
	}
	f := c.Flags()
	f.BoolVar(&q.gresConf, "gres-conf", false, "print gres.conf lines, and what the configured gres.conf says otherwise (to stderr)")
	f.BoolVar(&q.nodeResources, "node-resources", false, "print the properties of a NodeManager's node-resources.xml and yarn-site.xml")
	f.BoolVar(&q.nodeAttributes, "node-attributes", false, "print the type of the GPUs as a NodeManager's node-attribute script does")
	f.BoolVar(&q.check, "check", false, "say whether the GPUs are well, by exit code and one line per fault")
	f.BoolVar(&q.yarn, "yarn", false, "with --check: begin the output with \"ERROR reason\" if broken, as a NodeManager's health script must")
	f.BoolVar(&q.slurm, "slurm", false, "with --check: drain and undrain this node in Slurm, and requeue jobs whose GPU is gone")
	f.IntVar(&q.rule.Bad, "bad", 3, "with --slurm: how many checks in a row that are not healthy drain for what is only transient")
	f.IntVar(&q.rule.Good, "good", 3, "with --slurm: how many healthy checks in a row undrain")
	f.DurationVar(&q.tell, "tell", 5*time.Minute, "with --slurm: how often to tell how busy the GPUs were; 0: never")
	f.StringVar(&q.state, "state", stateDir, "with --slurm: the `FOLDER` of what is remembered from one check to the next")
	f.StringVar(&q.gresFile, "gres-file", "", "the configured gres.conf (default: beside $SLURM_CONF, in /etc/slurm, or in /run/slurm/conf)")
	f.StringVar(&q.library, "library", "", "NVML's library (default: libnvidia-ml.so.1 where the loader finds it)")
	f.DurationVar(&q.limit, "limit", gpu.DefaultLimit, "how long NVML may take for everything")
	return c
}

// coded is an error with an exit code of its own.
type coded struct {
	code int
	error
}

func (c coded) Unwrap() error { return c.error }

// hereEnv marks the process that reads.
const hereEnv = "THEMIS_GPUS_HERE"

// endGrace is how long the reading process may take to end once its own limit is over.
const endGrace = 2 * time.Second

// through keeps exec from giving a file itself to a process that may be left behind with it.
type through struct{ io.Writer }

// supervise makes the call in another process. A thread that hangs in the driver cannot be
// ended, nor can its process, and whoever waits for that process, or for its
// output to be closed, would hang too.
func (q *gpusCall) supervise() error {
	code, err := q.reader(through{os.Stdout}, through{os.Stderr})
	if err == nil && code > 0 {
		return coded{code, errors.New("")} // it has said why
	}
	return err
}

// stuck is a reader that did not end.
type stuck struct {
	pid   int
	limit time.Duration
}

func (s stuck) Error() string {
	return fmt.Sprintf("NVML did not return within %v, and the process that reads it (%d) did not end", s.limit, s.pid)
}

// reader runs the process that reads; an error of type stuck: out and said may still be written to.
func (q *gpusCall) reader(out, said io.Writer) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	reader := exec.Command(self, os.Args[1:]...)
	reader.Env = append(os.Environ(), hereEnv+"=1")
	reader.Stdout, reader.Stderr = out, said
	reader.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the signal comes when the thread ends that started the process
	defer runtime.UnlockOSThread()
	if err := reader.Start(); err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() { done <- reader.Wait() }()
	select {
	case err = <-done:
	case <-time.After(q.limit + endGrace):
		reader.Process.Kill()
		return exitTransient, coded{exitTransient, stuck{reader.Process.Pid, q.limit}}
	}
	if code := reader.ProcessState.ExitCode(); code > 0 {
		return code, nil
	}
	return 0, err
}

func (q *gpusCall) run() error {
	asked := 0
	for _, a := range []bool{q.gresConf, q.nodeResources, q.nodeAttributes, q.check} {
		if a {
			asked++
		}
	}
	if asked > 1 {
		return usageError{errors.New("--gres-conf, --node-resources, --node-attributes and --check go one at a time")}
	}
	if q.yarn && (!q.check || q.json) {
		return usageError{errors.New("--yarn goes with --check, and not with --json")}
	}
	if q.slurm && (!q.check || q.json || q.yarn) {
		return usageError{errors.New("--slurm goes with --check, and not with --json or --yarn")}
	}
	if q.tell < 0 {
		return usageError{errors.New("--tell must not be negative")}
	}
	if q.rule.Bad < 1 || q.rule.Good < 1 {
		return usageError{errors.New("--bad and --good must be at least 1")}
	}
	if q.limit <= 0 || q.slurm && q.limit > limitSlurm {
		return usageError{fmt.Errorf("--limit must be above 0, and with --slurm at most %v, as slurmd ends a health check after a minute", limitSlurm)}
	}
	switch here := os.Getenv(hereEnv) != ""; {
	case !here && q.slurm:
		return q.health()
	case !here:
		return q.supervise()
	}
	conf, err := q.configured()
	if err != nil {
		return err
	}
	var options []nvml.LibraryOption
	if q.library != "" {
		options = append(options, nvml.WithLibraryPath(q.library))
	}
	m, err := gpu.Read(nvml.New(options...), os.DirFS("/"), q.limit)
	if q.slurm {
		return printValue(readingOf(m, err, conf))
	}
	if errors.Is(err, gpu.ErrNoNVML) {
		return coded{exitNoNVML, fmt.Errorf("%w\nhint: it comes with the NVIDIA driver; --library names another place", err)}
	}
	if q.check {
		return q.judge(gpu.Judge(m, err, conf.Files()))
	}
	var hung *gpu.Hung
	if errors.As(err, &hung) {
		return coded{exitTransient, err}
	} else if err != nil {
		return err
	}
	switch {
	case q.gresConf:
		return q.printGres(m, conf)
	case q.nodeResources:
		_, err = fmt.Print(gpu.NodeResources(m))
	case q.nodeAttributes:
		_, err = fmt.Print(gpu.NodeAttributes(m))
	case q.json:
		err = printValue(m)
	default:
		m.Print(os.Stdout)
	}
	return err
}

// gresAt is a gres.conf and where it was found; "" if none was.
type gresAt struct {
	path string
	*gpu.GresFile
}

// configured reads the gres.conf of this machine where the call needs one.
func (q *gpusCall) configured() (gresAt, error) {
	none := gresAt{GresFile: &gpu.GresFile{}}
	if !q.gresConf && !q.check {
		return none, nil
	}
	places := []string{"/etc/slurm/gres.conf", "/run/slurm/conf/gres.conf"}
	if conf := os.Getenv("SLURM_CONF"); conf != "" {
		places = []string{filepath.Join(filepath.Dir(conf), "gres.conf")}
	}
	if q.gresFile != "" {
		places = []string{q.gresFile}
	}
	for _, path := range places {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) && q.gresFile == "" {
			continue
		} else if err != nil {
			return none, err
		}
		node, err := nodeName()
		if err != nil {
			return none, err
		}
		file, err := gpu.ParseGres(string(text), node)
		if err != nil {
			return none, fmt.Errorf("%s: %w", path, err)
		}
		return gresAt{path, file}, nil
	}
	return none, nil
}

// nodeName is this node's in Slurm, as slurmd tells a health check.
func nodeName() (string, error) {
	if name := os.Getenv("SLURMD_NODENAME"); name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	return host, err
}

func (q *gpusCall) printGres(m *gpu.Machine, conf gresAt) error {
	lines, notes := gpu.GresLines(m)
	var differences []string
	if conf.path != "" && conf.Auto == "" {
		differences = conf.Differences(lines)
	}
	if q.json {
		if err := printValue(map[string]any{"lines": lines, "notes": notes, "configured": conf.path, "autodetect": conf.Auto, "differences": differences}); err != nil {
			return err
		}
	} else {
		for _, n := range notes {
			fmt.Println("# " + n)
		}
		for _, l := range lines {
			fmt.Println(l)
		}
	}
	switch {
	case len(differences) > 0:
		return coded{exitDiffers, fmt.Errorf("%s differs:\n  %s", conf.path, strings.Join(differences, "\n  "))}
	case conf.Auto != "":
		fmt.Fprintf(os.Stderr, "themis: not compared: %s has AutoDetect=%s\n", conf.path, conf.Auto)
	case conf.path == "":
		fmt.Fprintln(os.Stderr, "themis: not compared: no gres.conf here; --gres-file names one")
	}
	return nil
}

func (q *gpusCall) judge(v gpu.Verdict) error {
	switch {
	case q.json:
		if err := printValue(v); err != nil {
			return err
		}
	case q.yarn && v.State == gpu.Broken:
		fmt.Println("ERROR " + v.Reason())
	default:
		fmt.Println(v.State)
		for _, f := range v.Faults {
			fmt.Printf("%s: %s\n", f.State, f)
		}
	}
	switch {
	case q.yarn && v.State == gpu.Broken: // NodeHealthScriptRunner looks at the output only if all went well
		return nil
	case v.State == gpu.Broken:
		return coded{exitBroken, errors.New(v.Reason())}
	case v.State == gpu.Transient:
		return coded{exitTransient, errors.New(v.Reason())}
	}
	return nil
}

func printValue(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return printJSON(raw)
}
