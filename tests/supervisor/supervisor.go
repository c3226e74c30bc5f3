// SPDX-License-Identifier: Apache-2.0

// Package supervisor runs the daemons of a private cluster for a test, so that
// they end with it however it ends.
package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The daemons of a cluster are children of a supervisor: this very program,
// started again, which does nothing but start, signal and reap them. It is
// the subreaper of all they start (jobs and a launched core among it), has a
// session of its own so that Ctrl-C passes it by, and reads its orders from a
// pipe that only the test process holds. When that pipe ends, however the
// test ended, it kills every descendant and removes the cluster's folder.

const (
	supervisorEnv       = "THEMIS_TEST_SUPERVISOR"
	prSetChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER, linux/prctl.h
)

type order struct {
	Op     string // "start", "signal" or "close"
	Name   string
	Argv   []string
	Env    []string
	Log    string // file that takes the output
	Signal int
	Keep   bool // close: leave the folder
}

// event answers an order (Reply) or tells that a daemon ended.
type event struct {
	Reply  bool
	Name   string
	PID    int
	Status string
	Error  string
}

func init() {
	if dir := os.Getenv(supervisorEnv); dir != "" {
		runtime.LockOSThread() // daemons die with the thread that started them
		os.Exit(supervise(dir))
	}
}

// supervise runs the supervisor of the cluster in dir until its orders end.
func supervise(dir string) int {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		fmt.Fprintln(os.Stderr, "supervisor: become a subreaper:", errno)
		return 1
	}
	orders := make(chan order)
	go func() {
		defer close(orders)
		for in := json.NewDecoder(os.Stdin); ; {
			var o order
			if in.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()

	out := json.NewEncoder(os.Stdout)
	daemons := map[int]string{} // by process id
	keep := false
	tick := time.NewTicker(20 * time.Millisecond)
loop:
	for {
		select {
		case <-tick.C:
			reap(daemons, out)
		case o, more := <-orders:
			if !more {
				break loop
			}
			e := event{Reply: true, Name: o.Name}
			switch o.Op {
			case "start":
				pid, err := startDaemon(o)
				if err != nil {
					e.Error = err.Error()
				} else {
					daemons[pid] = o.Name
					e.PID = pid
				}
			case "signal":
				e.Error = "not running"
				for pid, name := range daemons {
					if name == o.Name {
						e.PID, e.Error = pid, ""
						if err := syscall.Kill(pid, syscall.Signal(o.Signal)); err != nil {
							e.Error = err.Error()
						}
					}
				}
			case "close":
				keep = o.Keep
				break loop
			}
			out.Encode(e)
		}
	}
	killDescendants()
	if !keep {
		os.RemoveAll(dir)
	}
	return 0
}

func startDaemon(o order) (int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	return syscall.ForkExec(o.Argv[0], o.Argv, &syscall.ProcAttr{
		Env:   o.Env,
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
}

// reap collects every ended child, and reports those that are daemons.
func reap(daemons map[int]string, out *json.Encoder) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
		if name, ok := daemons[pid]; ok {
			delete(daemons, pid)
			out.Encode(event{Name: name, PID: pid, Status: statusText(ws)})
		}
	}
}

func statusText(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "killed by " + ws.Signal().String()
	}
	return "exit status " + strconv.Itoa(ws.ExitStatus())
}

// killDescendants kills until no child is left. Orphans of the killed become
// children of this process, the subreaper, so none can slip away.
func killDescendants() {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		for _, pid := range descendants(os.Getpid()) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err == syscall.ECHILD {
				return
			}
			if pid <= 0 {
				break
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// descendants lists the processes below root, in no order.
func descendants(root int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// pid (name) state ppid ...; the name may hold anything.
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		ppid, _ := strconv.Atoi(fields[1])
		children[ppid] = append(children[ppid], pid)
	}
	var found []int
	for todo := children[root]; len(todo) > 0; todo = todo[1:] {
		found = append(found, todo[0])
		todo = append(todo, children[todo[0]]...)
	}
	return found
}

// Supervisor is the test process's end of a running supervisor. Its methods
// may be called concurrently.
type Supervisor struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	replies chan event

	turn sync.Mutex // one order at a time

	mu     sync.Mutex
	pids   map[string]int    // of what runs
	status map[string]string // of what has ended
	ended  chan struct{}     // closed and replaced whenever a daemon ends
}

// Start starts a supervisor whose daemons belong to the folder; Close removes it.
func Start(dir string) (*Supervisor, error) {
	cmd := exec.Command("/proc/self/exe", "themis-test-supervisor", dir)
	cmd.Env = append(os.Environ(), supervisorEnv+"="+dir)
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Supervisor{
		cmd: cmd, orders: in, replies: make(chan event),
		pids: map[string]int{}, status: map[string]string{}, ended: make(chan struct{}),
	}
	go s.listen(out)
	return s, nil
}

func (s *Supervisor) listen(out io.Reader) {
	defer close(s.replies)
	for in := json.NewDecoder(out); ; {
		var e event
		if in.Decode(&e) != nil {
			return
		}
		if e.Reply {
			s.replies <- e
			continue
		}
		s.mu.Lock()
		if s.pids[e.Name] == e.PID {
			delete(s.pids, e.Name)
		}
		s.status[e.Name] = e.Status
		close(s.ended)
		s.ended = make(chan struct{})
		s.mu.Unlock()
	}
}

func (s *Supervisor) do(o order) (event, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := json.NewEncoder(s.orders).Encode(o); err != nil {
		return event{}, fmt.Errorf("supervisor: %w", err)
	}
	e, ok := <-s.replies
	if !ok {
		return event{}, errors.New("supervisor is gone")
	}
	if e.Error != "" {
		return e, fmt.Errorf("%s %s: %s", o.Op, o.Name, e.Error)
	}
	if o.Op == "start" {
		s.mu.Lock()
		if s.status[o.Name] == "" {
			s.pids[o.Name] = e.PID
		}
		s.mu.Unlock()
	}
	return e, nil
}

// Start runs argv as the daemon name; argv[0] is an absolute path.
func (s *Supervisor) Start(name, log string, env []string, argv ...string) error {
	s.mu.Lock()
	delete(s.status, name)
	s.mu.Unlock()
	_, err := s.do(order{Op: "start", Name: name, Argv: argv, Env: env, Log: log})
	return err
}

func (s *Supervisor) Signal(name string, sig syscall.Signal) error {
	_, err := s.do(order{Op: "signal", Name: name, Signal: int(sig)})
	return err
}

// PID is the process id of a running daemon, 0 if it does not run.
func (s *Supervisor) PID(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pids[name]
}

// EndedWith is how a daemon ended, "" while it runs or was never started.
func (s *Supervisor) EndedWith(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status[name]
}

// Wait returns once the daemon does not run, false if that took too long.
func (s *Supervisor) Wait(name string, timeout time.Duration) bool {
	late := time.After(timeout)
	for {
		s.mu.Lock()
		_, running := s.pids[name]
		ended := s.ended
		s.mu.Unlock()
		if !running {
			return true
		}
		select {
		case <-ended:
		case <-late:
			return false
		}
	}
}

// Close ends all daemons and the supervisor, and removes the folder unless
// it is to be kept.
func (s *Supervisor) Close(keep bool) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	json.NewEncoder(s.orders).Encode(order{Op: "close", Keep: keep})
	s.orders.Close()
	for range s.replies {
	}
	return s.cmd.Wait()
}
