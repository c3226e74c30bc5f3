// SPDX-License-Identifier: Apache-2.0

package privateyarn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"themis/tests/supervisor"
)

// Shell is an application of Hadoop's own distributed shell: so many containers,
// each of which runs a command. Nobody here wrote its client or its master.
type Shell struct {
	Name       string // also tells its client from others on this cluster
	User       string
	Queue      string
	Containers int
	GPUs       int    // of each
	Command    string // one word
	Args       string
	Tags       []string
}

// shellDir has the jars that a class path needs at its end for distributed shell.
func (c *Cluster) shellDir() string { return filepath.Join(c.build, "yarn/shell") }

// ShellCommand writes a script that submits to this cluster by distributed shell
// and takes its options, and returns its path. HADOOP_USER_NAME says who submits.
func (c *Cluster) ShellCommand() (string, error) {
	jars, err := filepath.Glob(filepath.Join(c.shellDir(), "hadoop-yarn-applications-distributedshell-*.jar"))
	if err != nil || len(jars) != 1 {
		return "", fmt.Errorf("no distributed shell in %s (run make yarn first)", c.shellDir())
	}
	argv := append([]string{"exec", c.java, "-Xmx96m"}, jvm...)
	argv = append(argv, "-Dlog4j.configuration=file:"+filepath.Join(c.Dir, "conf/log4j.properties"),
		`-Duser.home="`+c.Dir+`/home/$HADOOP_USER_NAME"`, // it uploads its jar there
		"-cp", "'"+c.classpath("conf")+":"+c.shellDir()+"/*'", "org.apache.hadoop.yarn.applications.distributedshell.Client",
		"-jar", jars[0], "-master_memory", "256", "-container_memory", "64", `"$@"`)
	path := filepath.Join(c.Dir, "dshell")
	return path, os.WriteFile(path, []byte("#!/bin/sh\n"+strings.Join(argv, " ")+"\n"), 0o755)
}

// SubmitShell starts the client, which submits and then follows its application.
func (c *Cluster) SubmitShell(s Shell) error {
	script, err := c.ShellCommand()
	if err != nil {
		return err
	}
	resources := "memory-mb=64,vcores=1"
	if s.GPUs > 0 {
		resources += fmt.Sprintf(",yarn.io/gpu=%d", s.GPUs)
	}
	argv := []string{script, "-appname", s.Name, "-queue", s.Queue, "-num_containers", fmt.Sprint(s.Containers),
		"-container_resources", resources, "-shell_command", s.Command, "-shell_args", s.Args}
	if len(s.Tags) > 0 {
		argv = append(argv, "-application_tags", strings.Join(s.Tags, ","))
	}
	return c.sup.Start("dshell-"+s.Name, c.log("dshell-"+s.Name), append(c.env(), "HADOOP_USER_NAME="+s.User), argv...)
}

// ShellFailed is what a client said that ended in failure; nil while it runs and
// after its application succeeded.
func (c *Cluster) ShellFailed(name string) error {
	if status := c.sup.EndedWith("dshell-" + name); status != "" && status != "exit status 0" {
		said, _ := os.ReadFile(c.log("dshell-" + name))
		return errors.New("distributed shell, " + name + ": " + status + "\n" + supervisor.Tail(string(said), 10))
	}
	return nil
}

// Apps lists all applications, in the order in which they came.
func (c *Cluster) Apps() ([]Report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var got struct {
		Apps struct {
			App []Report `json:"app"`
		} `json:"apps"`
	}
	err := c.get(ctx, "/ws/v1/cluster/apps", &got)
	slices.SortFunc(got.Apps.App, func(a, b Report) int { return cmp.Compare(a.ID, b.ID) })
	return got.Apps.App, err
}

// GPUs are those of an application's containers, by node. Its first attempt
// counts; there is none before its master was placed, which is an error.
func (c *Cluster) GPUs(app string) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var got struct {
		Container []struct {
			Node string `json:"assignedNodeId"`
			Each struct {
				Entry []struct {
					Key   string `json:"key"`
					Value int    `json:"value"`
				} `json:"entry"`
			} `json:"allocatedResources"`
		} `json:"container"`
	}
	attempt := strings.Replace(app, "application_", "appattempt_", 1) + "_000001"
	err := c.get(ctx, "/ws/v1/cluster/apps/"+app+"/appattempts/"+attempt+"/containers", &got)
	gpus := map[string]int{}
	for _, one := range got.Container {
		for _, r := range one.Each.Entry {
			if r.Key == "yarn.io/gpu" && r.Value > 0 {
				gpus[one.Node] += r.Value
			}
		}
	}
	return gpus, err
}

// SocketPath is where the launched core listens.
func (c *Cluster) SocketPath() string {
	return filepath.Join(c.Dir, rm(c.active), "themis/themis.sock")
}

// WebPage is the ResourceManager's.
func (c *Cluster) WebPage() string {
	return fmt.Sprintf("http://localhost:%d/cluster", c.ports.rms[c.active][4])
}
