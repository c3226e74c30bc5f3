// SPDX-License-Identifier: Apache-2.0

package privateyarn

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"themis/tests/supervisor"
)

// Admin runs yarn rmadmin.
func (c *Cluster) Admin(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	argv := append(jvm[:len(jvm):len(jvm)], "-Xmx96m", "-cp", c.classpath("conf"), "org.apache.hadoop.yarn.client.cli.RMAdminCLI")
	cmd := exec.CommandContext(ctx, c.java, append(argv, args...)...)
	cmd.Env = c.env()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("rmadmin %v: %w: %s", args, err, supervisor.Tail(string(out), 20))
	}
	return nil
}

// Exclude takes these nodes, and no others, out of the cluster: at once, or with a
// timeout once their containers have ended.
func (c *Cluster) Exclude(timeout time.Duration, nodes ...int) error {
	var names strings.Builder
	for _, i := range nodes {
		names.WriteString(address(i) + "\n")
	}
	if err := os.WriteFile(c.excluded(), []byte(names.String()), 0o644); err != nil {
		return err
	}
	if timeout > 0 {
		return c.Admin("-refreshNodes", "-g", strconv.Itoa(int(timeout.Seconds())), "-server")
	}
	return c.Admin("-refreshNodes")
}

func (c *Cluster) excluded() string { return filepath.Join(c.Dir, "conf/excluded") }

// RefreshQueues replaces properties of capacity-scheduler.xml, without their common
// prefix, and has the ResourceManager read it again.
func (c *Cluster) RefreshQueues(properties map[string]string) error {
	c.queues = maps.Clone(properties)
	if err := c.writeQueues(); err != nil {
		return err
	}
	return c.Admin("-refreshQueues")
}

// Label gives a node a label of its own, under which queue a has all of it. The
// cluster needs yarn.node-labels.enabled.
func (c *Cluster) Label(label string, i int) error {
	if err := c.Admin("-addToClusterNodeLabels", label+"(exclusive=true)"); err != nil {
		return err
	}
	if err := c.Admin("-replaceLabelsOnNode", c.NodeName(i)+"="+label); err != nil {
		return err
	}
	of := "accessible-node-labels"
	return c.RefreshQueues(map[string]string{
		"root." + of: label, "root." + of + "." + label + ".capacity": "100",
		"root.a." + of: label, "root.a." + of + "." + label + ".capacity": "100", "root.b." + of: " ",
	})
}

// MasterPID is the process of the application's master, 0 if there is none.
func (s *Submitted) MasterPID() int {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		data, _ := os.ReadFile(path)
		argv := strings.Split(string(data), "\x00")
		if filepath.Base(argv[0]) == "java" && strings.Contains(string(data), s.Dir) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}

// MasterNode is the number of the node where the application's master runs, -1 if
// it has none.
func (s *Submitted) MasterNode() int {
	dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", s.MasterPID()))
	for i := range s.c.opt.Nodes {
		if strings.Contains(dir, "/"+node(i)+"/") {
			return i
		}
	}
	return -1
}

// KillMaster kills the application's master, whose attempt fails.
func (s *Submitted) KillMaster() error {
	pid := s.MasterPID()
	if pid == 0 {
		return fmt.Errorf("%s has no master", s.ID)
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}
