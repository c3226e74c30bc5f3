// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"themis/bridge/pb"
)

// echo is a core that grants what it is shown.
type echo struct{}

func (echo) Observe(_ context.Context, s *pb.Snapshot) (*pb.Directives, error) {
	if s.NowS == 666 {
		panic("as told")
	}
	return &pb.Directives{Seq: uint64(s.NowS), FallbackAfterMs: 300, AgainMs: 10000}, nil
}

func (echo) View(_ context.Context, uid uint32, v *pb.View) ([]byte, error) {
	return fmt.Appendf(nil, `{"uid":%d}`, uid), nil
}

// TestMain also plays the launched core, and a stranger who calls the socket.
func TestMain(m *testing.M) {
	if owner, ok := Launched(); ok {
		ServeLaunched(echo{}, owner)
		os.Exit(0)
	}
	if socket := os.Getenv("BRIDGE_TEST_CALL"); socket != "" {
		fmt.Println(call(socket))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// call tries each method and says how it went.
func call(socket string) string {
	conn, err := Dial(socket, nil)
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), protocolKey, strconv.Itoa(Protocol)), 5*time.Second)
	defer cancel()
	_, observe := pb.NewHostClient(conn).Observe(ctx, &pb.Snapshot{NowS: 1})
	_, read := pb.NewReadClient(conn).Get(ctx, &pb.View{})
	shutdown := conn.Invoke(ctx, "/plugin.GRPCController/Shutdown", &pb.View{}, &pb.Answer{})
	return fmt.Sprintf("read: %v\nobserve: %v\nshutdown: %v", read, observe, shutdown)
}

func serveAt(t *testing.T) (socket string, s *grpc.Server) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bridge.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	socket = filepath.Join(dir, "s")
	lis, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	s = NewServer(echo{}, []uint32{uint32(os.Getuid())})
	go s.Serve(lis)
	t.Cleanup(s.Stop)
	return socket, s
}

func newTestClient(t *testing.T, socket string) *Client {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(Options{Host: "slurm", Binary: self, StateDir: t.TempDir(), Socket: socket, Owner: uint32(os.Getuid()),
		Log: func(l Level, s string) { t.Logf("%d %s", l, s) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// answers sends snapshot n until its answer is there.
func answers(t *testing.T, c *Client, n int64) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c.Observe(&pb.Snapshot{NowS: n})
		if d := c.Latest(); d != nil && d.Seq == uint64(n) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no answer to %d", n)
		}
	}
}

func TestLaunchedIsRelaunched(t *testing.T) {
	c := newTestClient(t, "")
	answers(t, c, 1)
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(os.Getpid()), "-f", "serve").Output()
	if err != nil {
		t.Fatalf("no core was launched: %v", err)
	}
	pid, _ := strconv.Atoi(strings.Fields(string(out))[0])
	syscall.Kill(pid, syscall.SIGKILL)
	answers(t, c, 2)
	if p := c.Pulse(); !p.Connected || p.Fallback {
		t.Errorf("pulse %+v", p)
	}
}

func TestAttachedFailsOpenAndIsFoundAgain(t *testing.T) {
	socket, server := serveAt(t)
	c := newTestClient(t, socket)
	answers(t, c, 1)
	server.Stop()
	for end := time.Now().Add(10 * time.Second); !c.Pulse().Fallback; time.Sleep(20 * time.Millisecond) {
		c.Observe(&pb.Snapshot{NowS: 2})
		if time.Now().After(end) {
			t.Fatal("silent for longer than fallback_after, yet no fallback")
		}
	}
	lis, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	again := NewServer(echo{}, []uint32{uint32(os.Getuid())})
	go again.Serve(lis)
	defer again.Stop()
	answers(t, c, 3)
}

// TestPanicInTheCore: the caller gets an error and the server lives.
func TestPanicInTheCore(t *testing.T) {
	socket, _ := serveAt(t)
	c := newTestClient(t, socket)
	c.Observe(&pb.Snapshot{NowS: 666})
	answers(t, c, 1)
}

// TestStrangers: another user may read and nothing else; the kernel says who
// calls, the cookie says nothing.
func TestStrangers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	socket, _ := serveAt(t)
	self := filepath.Join(filepath.Dir(socket), "caller")
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(self, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{"BRIDGE_TEST_CALL=" + socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	said := string(out)
	if err != nil || !strings.Contains(said, "read: <nil>") || !strings.Contains(said, "observe: rpc error: code = PermissionDenied") || strings.Contains(said, "shutdown: <nil>") || !strings.Contains(said, "uid 65534 may not call") {
		t.Errorf("%v\n%s", err, said)
	}
	if said := call(socket); !strings.Contains(said, "observe: <nil>") {
		t.Errorf("root is refused: %s", said)
	}
}

// TestFakeCore: a client does not talk to a socket of a third user.
func TestFakeCore(t *testing.T) {
	socket, _ := serveAt(t)
	conn, err := Dial(socket, func(uid uint32) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if _, err := pb.NewReadClient(conn).Get(ctx, &pb.View{}); err == nil || !strings.Contains(err.Error(), "belongs to uid") {
		t.Errorf("got %v", err)
	}
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	os.WriteFile(file, nil, 0o600)
	if _, err := Listen(file); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a plain file was replaced: %v", err)
	}
	if os.Getuid() == 0 {
		theirs := t.TempDir()
		if err := os.Chown(theirs, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(filepath.Join(theirs, "s")); err == nil || !strings.Contains(err.Error(), "belongs to uid 65534") {
			t.Errorf("a stranger's folder was used: %v", err)
		}
	}
	socket, _ := serveAt(t)
	if _, err := Listen(socket); err == nil || !strings.Contains(err.Error(), "another core") {
		t.Errorf("a live socket was replaced: %v", err)
	}
}
