// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// core is a themis serve of its own, to which hosts attach.
type core struct {
	t      *testing.T
	dir    string
	socket string
	cmd    *exec.Cmd
}

func newCore(t *testing.T) *core {
	t.Helper()
	dir, err := os.MkdirTemp("", "themis-core.")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &core{t: t, dir: dir, socket: filepath.Join(dir, "s")}
	t.Cleanup(func() {
		c.kill()
		os.RemoveAll(dir)
	})
	return c
}

// serve starts it with the text of a themis.toml and waits for its socket.
func (c *core) serve(toml string) {
	c.t.Helper()
	config := filepath.Join(c.dir, "themis.toml")
	if err := os.WriteFile(config, []byte(toml+"\n[serve]\nsocket = \""+c.socket+"\"\n"), 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.cmd = exec.Command(themisBinary(), "serve", "--config", config, "--state", c.dir)
	c.cmd.Stdout, c.cmd.Stderr = os.Stdout, os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the signal comes when the thread ends that started the process
		started <- c.cmd.Start()
		c.cmd.Wait()
	}()
	if err := <-started; err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, func() string {
		if _, err := exec.Command(themisBinary(), "--socket", c.socket, "status").Output(); err != nil {
			return "the core does not answer: " + err.Error()
		}
		return ""
	})
}

// kill ends it by SIGKILL.
func (c *core) kill() {
	if c.cmd != nil && c.cmd.Process != nil {
		c.cmd.Process.Kill()
	}
}

func themisBinary() string {
	if b := os.Getenv("THEMIS_BUILD"); b != "" {
		return filepath.Join(b, "bin/themis")
	}
	return "../build/bin/themis"
}
