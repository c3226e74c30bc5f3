// SPDX-License-Identifier: Apache-2.0

// Package privateyarn starts a YARN cluster for one test: a ResourceManager and
// some NodeManagers with fake GPUs, from the released jars, on loopback ports,
// with all state in one temporary folder. Several clusters run side by side.
// However the test process ends, kill -9 included, the daemons, the containers
// and the folder go with it.
//
// Jars, themis-yarn.jar, libthemis.so and the themis binary come from the
// module's build folder, or from $THEMIS_BUILD: make yarn puts them there.
package privateyarn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"themis/tests/supervisor"
)

// Options say what cluster to start. The zero value is stock YARN with two nodes
// of four GPUs, a queue a and a queue b with half of the cluster each, and
// asynchronous scheduling, the default of the release.
type Options struct {
	Nodes     int // default 2
	GPUs      int // per node; default 4
	VCores    int // per node; default 16
	MemoryMiB int // per node; default 8192

	Queues     []string          // leaves below root with even shares; default a, b
	Heartbeats bool              // schedule at node heartbeats, not asynchronously
	Site       map[string]string // further properties of yarn-site.xml; they replace ours

	NodeSite []map[string]string // the same of each NodeManager alone

	HA bool // two ResourceManagers, the second one on standby; see Failover

	Themis     bool   // with our jar
	ThemisTOML string // text of themis.toml
	Library    string // in place of libthemis.so; may not exist

	Before func(*Cluster) error // called once nodes have names, before any daemon starts

	Build string // folder with what is tested; default as the package says

	Keep bool // leave the folder on Close
}

// Cluster is a running cluster. Its methods may be called concurrently.
type Cluster struct {
	Dir string // all of its files; removed by Close

	opt     Options
	build   string
	java    string
	ports   ports
	active  int               // of the ResourceManagers, the one that leads
	queues  map[string]string // what RefreshQueues replaced
	sup     *supervisor.Supervisor
	closing sync.Once
	closed  error // by the first Close
}

type ports struct {
	rms   [][5]int // client, scheduler, tracker, admin, web
	nodes [][4]int // address, localizer, web, collector
}

// errPortTaken tells that another process was faster.
var errPortTaken = errors.New("a port was taken meanwhile")

// Start starts a cluster and waits until all its nodes run.
func Start(ctx context.Context, opt Options) (*Cluster, error) {
	opt = opt.withDefaults()
	for try := 1; ; try++ {
		c, err := start(ctx, opt)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, errPortTaken) || try == 5 {
			return nil, fmt.Errorf("start private yarn: %w", err)
		}
	}
}

// StartT is Start for a test: it ends the cluster with the test, and shows what
// the ResourceManager said of us if the test failed.
func StartT(t testing.TB, opt Options) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := Start(ctx, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what the ResourceManager said:\n%s", c.Said())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (o Options) withDefaults() Options {
	def := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	def(&o.Nodes, 2)
	def(&o.GPUs, 4)
	def(&o.VCores, 16)
	def(&o.MemoryMiB, 8192)
	if o.Queues == nil {
		o.Queues = []string{"a", "b"}
	}
	return o
}

func start(ctx context.Context, opt Options) (c *Cluster, err error) {
	c = &Cluster{opt: opt}
	if c.build, err = supervisor.BuildDir(opt.Build); err != nil {
		return nil, err
	}
	if c.java, err = exec.LookPath("java"); err != nil {
		return nil, fmt.Errorf("%w (run etc/install-packages)", err)
	}
	need := []string{"yarn/lib"}
	if opt.Themis {
		need = append(need, "bin/themis", "lib/libthemis.so", "lib/themis-yarn.jar")
	}
	for _, file := range need {
		if _, err := os.Stat(filepath.Join(c.build, file)); err != nil {
			return nil, fmt.Errorf("%w (run make yarn first)", err)
		}
	}
	if c.Dir, err = os.MkdirTemp("", "themis-yarn-"); err != nil {
		return nil, err
	}
	if err = os.Chmod(c.Dir, 0o755); err == nil {
		c.sup, err = supervisor.Start(c.Dir)
	}
	if err != nil {
		os.RemoveAll(c.Dir)
		return nil, err
	}
	if err = c.boot(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, c.Said())
		c.sup.Close(opt.Keep)
		return nil, err
	}
	return c, nil
}

func (c *Cluster) boot(ctx context.Context) error {
	if err := c.choosePorts(); err != nil {
		return err
	}
	if err := c.writeFiles(); err != nil {
		return err
	}
	if c.opt.Before != nil {
		if err := c.opt.Before(c); err != nil {
			return err
		}
	}
	for i := range c.ports.rms {
		if err := c.launchRM(i); err != nil {
			return err
		}
	}
	if c.opt.HA {
		if err := c.lead(0); err != nil {
			return err
		}
	}
	for i := range c.opt.Nodes {
		if err := c.StartNode(i); err != nil {
			return err
		}
	}
	return c.waitNodes(ctx, c.opt.Nodes)
}

func (c *Cluster) choosePorts() error {
	rms := 1
	if c.opt.HA {
		rms = 2
	}
	all, err := supervisor.FreePorts(5*rms + 4*c.opt.Nodes)
	if err != nil {
		return err
	}
	c.ports = ports{}
	for range rms {
		c.ports.rms, all = append(c.ports.rms, [5]int(all)), all[5:]
	}
	for range c.opt.Nodes {
		c.ports.nodes, all = append(c.ports.nodes, [4]int(all)), all[4:]
	}
	return nil
}

// NodeName is what YARN and Themis call the node with this number.
func (c *Cluster) NodeName(i int) string {
	return fmt.Sprintf("%s:%d", address(i), c.ports.nodes[i][0])
}

// address is a loopback address of the node's own: YARN tells hosts apart by it.
func address(i int) string { return fmt.Sprintf("127.0.0.%d", 2+i) }

// classpath of a daemon or an application master, its configuration first.
func (c *Cluster) classpath(conf string) string {
	path := []string{filepath.Join(c.Dir, conf)}
	if _, err := os.Stat(c.jar()); err == nil {
		path = append(path, c.jar())
	}
	return strings.Join(append(path, filepath.Join(c.build, "yarn/lib/*")), ":")
}

func (c *Cluster) jar() string { return filepath.Join(c.build, "lib/themis-yarn.jar") }

// jvm flags keep a daemon small on a shared machine.
var jvm = []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"}

func (c *Cluster) daemon(name, conf, heap, class string) error {
	argv := append([]string{c.java, "-Xmx" + heap}, jvm...)
	argv = append(argv, "-Dlog4j.configuration=file:"+filepath.Join(c.Dir, "conf/log4j.properties"),
		"-cp", c.classpath(conf), class)
	return c.sup.Start(name, c.log(name), c.env(), argv...)
}

func (c *Cluster) log(name string) string { return filepath.Join(c.Dir, "log", name+".log") }

func (c *Cluster) env() []string {
	return append(os.Environ(), "HADOOP_HOME="+c.Dir, "JAVA_HOME="+filepath.Dir(filepath.Dir(realpath(c.java))))
}

func realpath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

func rm(i int) string { return fmt.Sprintf("rm%d", i+1) }

func (c *Cluster) launchRM(i int) error {
	return c.daemon(rm(i), rm(i), "512m", "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager")
}

// Failover lets the other ResourceManager lead: the active one is killed, or in
// order steps back.
func (c *Cluster) Failover(kill bool) error {
	if kill {
		if err := c.KillRM(); err != nil {
			return err
		}
	} else if err := c.Admin("-transitionToStandby", rm(c.active)); err != nil {
		return err
	}
	return c.lead(1 - c.active)
}

// lead makes a ResourceManager that may just have started the active one; the other
// one may be dead.
func (c *Cluster) lead(i int) (err error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		if err = c.Admin("-transitionToActive", "--forceactive", rm(i)); err == nil {
			c.active = i
			return nil
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// StartRM starts a stopped ResourceManager and waits until it answers and its
// nodes are back.
func (c *Cluster) StartRM() error {
	if err := c.launchRM(c.active); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return c.waitNodes(ctx, c.opt.Nodes)
}

// KillRM ends the ResourceManager by SIGKILL.
func (c *Cluster) KillRM() error { return c.end(rm(c.active), syscall.SIGKILL, 10*time.Second) }

// StopRM ends the ResourceManager in order.
func (c *Cluster) StopRM() error { return c.end(rm(c.active), syscall.SIGTERM, 60*time.Second) }

// StartNode starts the NodeManager of a node.
func (c *Cluster) StartNode(i int) error {
	return c.daemon(node(i), node(i), "256m", "org.apache.hadoop.yarn.server.nodemanager.NodeManager")
}

// KillNode ends the NodeManager of a node by SIGKILL.
func (c *Cluster) KillNode(i int) error { return c.end(node(i), syscall.SIGKILL, 10*time.Second) }

func node(i int) string { return fmt.Sprintf("nm%d", i) }

func (c *Cluster) end(daemon string, sig syscall.Signal, timeout time.Duration) error {
	if err := c.sup.Signal(daemon, sig); err != nil {
		return err
	}
	if !c.sup.Wait(daemon, timeout) {
		return fmt.Errorf("%s runs on %v after %v", daemon, timeout, sig)
	}
	return nil
}

// Close kills all daemons and containers and removes the folder. It may be
// called twice.
func (c *Cluster) Close() error {
	c.closing.Do(func() { c.closed = c.sup.Close(c.opt.Keep) })
	return c.closed
}

// waitNodes returns once the ResourceManager counts so many running nodes.
func (c *Cluster) waitNodes(ctx context.Context, n int) error {
	daemons := []string{rm(c.active)}
	for i := range c.opt.Nodes {
		daemons = append(daemons, node(i))
	}
	for {
		var got struct {
			ClusterMetrics struct {
				ActiveNodes int `json:"activeNodes"`
			} `json:"clusterMetrics"`
		}
		err := c.get(ctx, "/ws/v1/cluster/metrics", &got)
		if err == nil && got.ClusterMetrics.ActiveNodes >= n {
			return nil
		}
		for _, d := range daemons {
			if status := c.sup.EndedWith(d); status != "" {
				log, _ := os.ReadFile(c.log(d))
				if strings.Contains(string(log), "Address already in use") {
					return errPortTaken
				}
				return fmt.Errorf("%s ended with %s:\n%s", d, status, supervisor.Tail(string(log), 30))
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no %d running nodes: %w", n, errors.Join(err, ctx.Err()))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Said is what the ResourceManager logged of Themis, and its errors.
func (c *Cluster) Said() string {
	var said []string
	for _, line := range strings.Split(c.RMLog(), "\n") {
		if strings.Contains(line, ": themis: ") || strings.Contains(line, " ERROR ") || strings.Contains(line, " FATAL ") {
			said = append(said, line)
		}
	}
	return supervisor.Tail(strings.Join(said, "\n"), 60)
}

// RMLog is the text of the ResourceManager's log so far.
func (c *Cluster) RMLog() string {
	data, _ := os.ReadFile(c.log(rm(c.active)))
	return string(data)
}

// Themis runs the themis command against the launched core.
func (c *Cluster) Themis(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(c.build, "bin/themis"), append(args, "--socket", filepath.Join(c.Dir, rm(c.active), "themis/themis.sock"))...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}

// CorePID is the process id of the core that the ResourceManager launched.
func (c *Cluster) CorePID() (int, error) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", c.RMPID()))
	for _, path := range tasks {
		data, _ := os.ReadFile(path)
		for _, child := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(child)
			if err != nil {
				continue
			}
			if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); filepath.Base(exe) == "themis" {
				return pid, nil
			}
		}
	}
	return 0, errors.New("the ResourceManager has no core")
}

// RMPID is the ResourceManager's process id, 0 while it does not run.
func (c *Cluster) RMPID() int { return c.sup.PID(rm(c.active)) }
