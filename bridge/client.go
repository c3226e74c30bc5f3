// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"themis/bridge/pb"
)

const (
	// answerTime is how long the core may take for one snapshot.
	answerTime = 10 * time.Second
	// startTime is how long a launched core may take to come up.
	startTime = 15 * time.Second
	// fallbackDefault holds unless themis.toml or the core says otherwise.
	fallbackDefault = time.Minute
	// againLeast and againMost bound how often the core hears from us.
	againLeast   = 20 * time.Millisecond
	againMost    = 10 * time.Second
	pauseMost    = time.Second
	backoffLeast = 200 * time.Millisecond
	backoffMost  = 10 * time.Second
)

// Level grades a log line of the client.
type Level int

// Levels, as in themis.h.
const (
	LogError Level = iota
	LogInfo
	LogDebug
)

// Options of a Client. All fields but Socket are needed.
type Options struct {
	Host, Cluster string
	Config        string // themis.toml, for a launched core
	StateDir      string // ledger and sockets of a launched core
	Binary        string // the themis executable
	Socket        string // where an attached core would listen; "" never attach
	Owner         uint32 // uid of the host daemon
	Log           func(Level, string)
}

// Client is the shim's end of the link. It never makes its caller wait: a
// snapshot is left for a goroutine to send, the newest answer is there to be
// read. It attaches to a core that listens on Options.Socket when the first
// snapshot comes, else launches one of its own, and does so again whenever the
// link breaks. Safe for concurrent use.
type Client struct {
	opts     Options
	attach   bool
	mu       sync.Mutex
	full     *pb.Snapshot // the last one that was not "unchanged"
	fresh    bool         // full has not been sent on this link
	asked    time.Time    // when the oldest unanswered snapshot came; zero if none
	latest   *pb.Directives
	fallback time.Duration
	linked   bool
	said     string // the last complaint; of run's goroutine, as is saidAt
	saidAt   time.Time
	wake     chan struct{}
	stop     context.CancelFunc
	done     chan struct{}
}

// NewClient starts the client's goroutine.
func NewClient(o Options) (*Client, error) {
	if o.Binary == "" || o.StateDir == "" || o.Host == "" {
		return nil, errors.New("options: host, binary and state folder must be named")
	}
	if o.Log == nil {
		o.Log = func(Level, string) {}
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Client{opts: o, asked: time.Now(), fallback: fallbackOf(o.Config),
		wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	if o.Socket != "" {
		if conn, err := net.Dial("unix", o.Socket); err == nil {
			conn.Close()
			c.attach = true
		}
	}
	go c.run(ctx)
	return c, nil
}

// fallbackOf reads the one setting that must hold while no core ever answers.
// What is wrong with the file is the core's to say.
func fallbackOf(path string) time.Duration {
	var c struct {
		Host struct {
			FallbackAfter string `toml:"fallback_after"`
		} `toml:"host"`
	}
	if _, err := toml.DecodeFile(path, &c); err == nil {
		if d, err := time.ParseDuration(c.Host.FallbackAfter); err == nil && d > 0 {
			return d
		}
	}
	return fallbackDefault
}

// Observe leaves a snapshot to be sent, replacing one not yet sent. The client
// owns it from then on.
func (c *Client) Observe(s *pb.Snapshot) {
	s.Host, s.Cluster = c.opts.Host, c.opts.Cluster
	c.mu.Lock()
	c.full, c.fresh = s, true
	if c.asked.IsZero() {
		c.asked = time.Now()
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take returns what is to be sent: the newest snapshot, or word that the last
// one still holds. Nil if there never was one.
func (c *Client) take() *pb.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == nil {
		return nil
	}
	if c.asked.IsZero() {
		c.asked = time.Now()
	}
	if c.fresh {
		c.fresh = false
		return c.full
	}
	return &pb.Snapshot{Host: c.full.Host, Cluster: c.full.Cluster, Unchanged: true}
}

// Latest returns the newest directives, nil before the first. They are shared
// and must not be changed.
func (c *Client) Latest() *pb.Directives {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// Pulse is the state of the link.
type Pulse struct {
	Connected bool
	Fallback  bool          // silent for longer than fallback_after: forget us
	Silent    time.Duration // for which the oldest unanswered snapshot has waited
}

// Pulse reports the state of the link.
func (c *Client) Pulse() Pulse {
	c.mu.Lock()
	defer c.mu.Unlock()
	var silent time.Duration
	if !c.asked.IsZero() {
		silent = time.Since(c.asked)
	}
	return Pulse{Connected: c.linked, Fallback: silent > c.fallback, Silent: silent}
}

// Close ends the client and a core that it launched, within two seconds.
func (c *Client) Close() {
	c.stop()
	select {
	case <-c.done:
	case <-time.After(2 * time.Second):
	}
}

// run sends snapshots as they come, over links that it makes anew.
func (c *Client) run(ctx context.Context) {
	defer close(c.done)
	wait := backoffLeast
	for ctx.Err() == nil {
		err := c.session(ctx, func() { wait = backoffLeast })
		c.mu.Lock()
		c.linked = false
		c.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		c.complain(err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, backoffMost)
	}
}

// complain logs why there is no core: once, then every minute while it stays
// the same.
func (c *Client) complain(err error) {
	said := err.Error()
	if said == c.said && time.Since(c.saidAt) < time.Minute {
		return
	}
	c.said, c.saidAt = said, time.Now()
	c.opts.Log(LogError, "no core: "+said)
}

// session makes one link and uses it until it breaks.
func (c *Client) session(ctx context.Context, good func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	conn, hangUp, err := c.link()
	if err != nil {
		return err
	}
	defer hangUp()
	host := pb.NewHostClient(conn)
	ctx = metadata.AppendToOutgoingContext(ctx, protocolKey, strconv.Itoa(Protocol))
	c.mu.Lock()
	c.fresh = c.full != nil // this core has not seen it
	c.mu.Unlock()
	for first := true; ; {
		snap := c.take()
		if snap == nil {
			if err := c.rest(ctx, againMost); err != nil {
				return err
			}
			continue
		}
		call, cancel := context.WithTimeout(ctx, answerTime)
		asked := time.Now()
		d, err := host.Observe(call, snap)
		took := time.Since(asked)
		cancel()
		if err != nil {
			return err
		}
		if first {
			c.opts.Log(LogInfo, "core answers ("+map[bool]string{true: "attached", false: "launched"}[c.attach]+")")
			first = false
		}
		c.mu.Lock()
		c.latest, c.linked, c.asked = d, true, time.Time{}
		if c.fresh { // one more came meanwhile
			c.asked = time.Now()
		}
		if d.FallbackAfterMs > 0 {
			c.fallback = time.Duration(d.FallbackAfterMs) * time.Millisecond
		}
		c.mu.Unlock()
		good()
		if err := pause(ctx, min(3*took, pauseMost)); err != nil {
			return err
		}
		again := time.Duration(d.AgainMs) * time.Millisecond
		if err := c.rest(ctx, min(max(again, againLeast), againMost)); err != nil {
			return err
		}
	}
}

// pause lets the host's machine breathe: a core busy with a long queue gets at
// most a quarter of a CPU.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// rest waits until a snapshot comes, but no longer than so long.
func (c *Client) rest(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.wake:
	case <-timer.C:
	}
	return nil
}

func (c *Client) trusts(uid uint32) bool { return uid == 0 || uid == c.opts.Owner }

// link attaches to a running core or launches one.
func (c *Client) link() (*grpc.ClientConn, func(), error) {
	if c.attach {
		conn, err := Dial(c.opts.Socket, c.trusts)
		if err != nil {
			return nil, nil, err
		}
		return conn, func() { conn.Close() }, nil
	}
	if err := os.MkdirAll(c.opts.StateDir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("state folder: %w", err)
	}
	cmd := exec.Command(c.opts.Binary, "serve", "--config", c.opts.Config, "--state", c.opts.StateDir)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", ownerEnv, c.opts.Owner))
	lines := &lineWriter{log: c.opts.Log}
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  Handshake,
		Plugins:          plugin.PluginSet{"host": &hostPlugin{}},
		Cmd:              cmd,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		GRPCDialOptions:  []grpc.DialOption{grpc.WithTransportCredentials(peerCreds{allow: c.trusts})},
		StartTimeout:     startTime,
		Stderr:           lines,
		SkipHostEnv:      true, // cmd.Env has it
		Logger:           hclog.NewNullLogger(),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: c.opts.StateDir},
	})
	hangUp := client.Kill
	rpc, err := client.Client()
	if err != nil {
		hangUp()
		if last := lines.lastError(); last != "" {
			err = errors.New(last)
		} else if strings.Contains(err.Error(), "\n") { // go-plugin's guesses
			err = errors.New("it ended before it could be spoken to")
		}
		return nil, nil, fmt.Errorf("launch %s: %w", c.opts.Binary, err)
	}
	raw, err := rpc.Dispense("host")
	if err != nil {
		hangUp()
		return nil, nil, err
	}
	return raw.(*grpc.ClientConn), hangUp, nil
}

// Dial connects to a core's socket. trusts is asked about the uid that the
// core runs as; nil trusts any, which is fine for reading.
func Dial(socket string, trusts func(uid uint32) bool) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(peerCreds{allow: trusts}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageMost), grpc.MaxCallSendMsgSize(messageMost)))
}

// lineWriter passes a launched core's log on, line by line. Lines begin with
// their level in brackets, as serve writes them.
type lineWriter struct {
	log  func(Level, string)
	mu   sync.Mutex
	rest []byte
	last string
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, p...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		w.rest = rest
		level := LogDebug
		if after, ok := bytes.CutPrefix(line, []byte("[ERROR] ")); ok {
			level, line, w.last = LogError, after, string(after)
		} else if after, ok := bytes.CutPrefix(line, []byte("[INFO] ")); ok {
			level, line = LogInfo, after
		}
		w.log(level, "core: "+string(line))
	}
}

func (w *lineWriter) lastError() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}
