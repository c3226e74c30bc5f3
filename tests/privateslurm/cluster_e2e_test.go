// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package privateslurm

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const holderEnv = "PRIVATESLURM_TEST_HOLDER"

// TestMain serves TestKill: in its child it starts a cluster with a job, says
// where, and waits to be killed.
func TestMain(m *testing.M) {
	if os.Getenv(holderEnv) == "" {
		os.Exit(m.Run())
	}
	c, err := Start(context.Background(), Options{Nodes: 1})
	if err == nil {
		_, err = c.Sbatch("alice", "setsid sleep 600 & sleep 600", "--gres=gpu:1")
	}
	for err == nil {
		if out, _ := c.Run(context.Background(), "squeue", "-h", "-o", "%T"); strings.TrimSpace(out) == "RUNNING" {
			break
		}
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("ready", c.Dir)
	select {}
}

// mentions lists the processes that have the folder in their command line or
// environment.
func mentions(dir string) []string {
	var found []string
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		cmdline, _ := os.ReadFile(proc + "/cmdline")
		environ, _ := os.ReadFile(proc + "/environ")
		if strings.Contains(string(cmdline)+string(environ), dir) {
			found = append(found, proc+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return found
}

func assertGone(t *testing.T, dir string) {
	t.Helper()
	var left []string
	for range 100 {
		left = mentions(dir)
		if _, err := os.Stat(dir); len(left) == 0 && os.IsNotExist(err) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("left behind: %s and processes\n%s", dir, strings.Join(left, "\n"))
}

func TestUsersRunJobs(t *testing.T) {
	began := time.Now()
	c := StartT(t, Options{GPUTypes: []string{"a100", "a100", "v100", "v100"}})
	t.Logf("started after %v", time.Since(began).Round(10*time.Millisecond))
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("start took %v", d)
	}
	for _, user := range []string{"alice", "bob", "carol"} {
		id, err := c.Sbatch(user, `echo "$(id -un) $CUDA_VISIBLE_DEVICES"; srun true`, "--gres=gpu:v100:2", "--comment=app=x y=1", "--time=5")
		if err != nil {
			t.Fatal(err)
		}
		job, err := c.Wait(id, Done, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		want, owner := user+" 0,1\n", user
		if !c.RealUsers {
			want, owner = c.self.Username+" 0,1\n", c.self.Username
			if job["Account"] != user {
				t.Errorf("job %s has account %q, want %q", id, job["Account"], user)
			}
		}
		if got := c.Output(id); got != want {
			t.Errorf("job of %s wrote %q, want %q", user, got, want)
		}
		if !strings.HasPrefix(job["UserId"], owner+"(") || job["JobState"] != "COMPLETED" {
			t.Errorf("job of %s is %s's and %s", user, job["UserId"], job["JobState"])
		}
		if job["Comment"] != "app=x y=1" {
			t.Errorf("comment came back as %q", job["Comment"])
		}
	}
}

func TestControllerRestarts(t *testing.T) {
	c := StartT(t, Options{Nodes: 2})
	id, err := c.Sbatch("alice", "sleep 4", "--gres=gpu:1", "-N2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(id, In("RUNNING"), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, stop := range []func() error{c.StopController, c.KillController} {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if c.ControllerPID() != 0 {
			t.Error("slurmctld still has a process id")
		}
		if err := c.StartController(); err != nil {
			t.Fatal(err)
		}
	}
	if job, err := c.Wait(id, Done, 30*time.Second); err != nil || job["JobState"] != "COMPLETED" {
		t.Errorf("job is %s after the restarts, error %v", job["JobState"], err)
	}
	if err := c.Drain("n1"); err != nil {
		t.Fatal(err)
	}
	out, err := c.Run(context.Background(), "sinfo", "-h", "-n", "n1", "-o", "%T")
	if strings.TrimSpace(out) != "drained" && strings.TrimSpace(out) != "draining" {
		t.Errorf("n1 is %q, error %v", out, err)
	}
}

func TestTwoClustersLeaveNothing(t *testing.T) {
	var dirs [2]string
	var wg sync.WaitGroup
	for i := range dirs {
		wg.Go(func() {
			c, err := Start(context.Background(), Options{Nodes: 1, GPUs: 1 + i})
			if err != nil {
				t.Error(err)
				return
			}
			dirs[i] = c.Dir
			id, err := c.Sbatch("bob", "sleep 100", fmt.Sprintf("--gres=gpu:%d", 1+i))
			if err == nil {
				_, err = c.Wait(id, In("RUNNING"), 20*time.Second)
			}
			if err != nil {
				t.Error(err)
			}
			if n := len(mentions(c.Dir)); n < 5 {
				t.Errorf("only %d processes mention %s: the check after Close would see nothing", n, c.Dir)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, dir := range dirs {
		assertGone(t, dir)
	}
}

func TestKill(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), holderEnv+"=1")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		dir, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
		if !ok {
			t.Fatalf("holder said %q", line)
		}
		cmd.Process.Signal(sig)
		cmd.Wait()
		assertGone(t, dir)
	}
}
