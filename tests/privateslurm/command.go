// SPDX-License-Identifier: Apache-2.0

package privateslurm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Env is the environment of the cluster's daemons and commands. It inherits
// nothing, so no setting of the caller's leaks into a test.
func (c *Cluster) Env() []string {
	conf := filepath.Join(c.Dir, "conf")
	return []string{
		"PATH=" + filepath.Join(c.build, "bin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + filepath.Join(c.Dir, "home"),
		"LANG=C.UTF-8",
		"SLURM_CONF=" + filepath.Join(conf, "slurm.conf"),
		"LD_PRELOAD=libnss_wrapper.so",
		"NSS_WRAPPER_PASSWD=" + filepath.Join(conf, "passwd"),
		"NSS_WRAPPER_GROUP=" + filepath.Join(conf, "group"),
		"NSS_WRAPPER_HOSTS=" + filepath.Join(conf, "hosts"),
		"THEMIS_BIN=" + filepath.Join(c.build, "bin", "themis"),
		"THEMIS_CONFIG=" + filepath.Join(c.Dir, "themis.toml"),
	}
}

// joinEnv is base with more put over it; LD_PRELOAD lists are joined, more's
// first, as a sanitizer's library must be.
func joinEnv(base, more []string) []string {
	env := slices.Clone(base)
	for _, entry := range more {
		key, value, _ := strings.Cut(entry, "=")
		i := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, key+"=") })
		switch {
		case i < 0:
			env = append(env, entry)
		case key == "LD_PRELOAD":
			env[i] = key + "=" + value + ":" + env[i][len(key)+1:]
		default:
			env[i] = entry
		}
	}
	return env
}

// User is someone who submits jobs: a user of that name where the cluster has
// real users, else an account of the one user there is.
type User struct {
	c    *Cluster
	name string
	uid  int // -1: whoever runs the test
}

// As is the user of that name; "" is whoever runs the test. A name that is
// not among Options.Users panics.
func (c *Cluster) As(name string) User {
	if name == "" {
		return User{c: c, uid: -1}
	}
	i := slices.Index(c.opt.Users, name)
	if i < 0 {
		panic("privateslurm: no user " + name)
	}
	if !c.RealUsers {
		return User{c: c, name: name, uid: -1}
	}
	return User{c: c, name: name, uid: firstUID + i}
}

// Command is a command of that user, ready to run in the folder of the jobs.
// It dies with the test process.
func (u User) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	path := name
	if !strings.Contains(name, "/") {
		for _, dir := range []string{filepath.Join(u.c.build, "bin"), "/usr/bin", "/usr/sbin", "/bin", "/sbin"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				path = filepath.Join(dir, name)
				break
			}
		}
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = u.c.Env()
	cmd.Dir = filepath.Join(u.c.Dir, "jobs")
	cmd.WaitDelay = 2 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if u.uid >= 0 {
		cmd.Env = joinEnv(cmd.Env, []string{"HOME=" + filepath.Join(u.c.Dir, "home", u.name), "USER=" + u.name, "LOGNAME=" + u.name})
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.uid)}
	} else if u.name != "" {
		cmd.Env = append(cmd.Env, "SBATCH_ACCOUNT="+u.name, "SALLOC_ACCOUNT="+u.name, "SLURM_ACCOUNT="+u.name)
	}
	return cmd
}

// Run runs a command and returns its output. The error of one that failed
// holds what it wrote to stderr.
func (u User) Run(ctx context.Context, name string, args ...string) (string, error) {
	return output(u.Command(ctx, name, args...), nil)
}

// Sbatch submits the script, text and not a file, in the folder of the jobs.
// It returns the job's id.
func (u User) Sbatch(script string, args ...string) (string, error) {
	if !strings.HasPrefix(script, "#!") {
		script = "#!/bin/bash\n" + script + "\n"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := output(u.Command(ctx, "sbatch", append([]string{"--parsable"}, args...)...), strings.NewReader(script))
	id, _, _ := strings.Cut(strings.TrimSpace(out), ";")
	return id, err
}

func output(cmd *exec.Cmd, in io.Reader) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(append([]string{filepath.Base(cmd.Path)}, cmd.Args[1:]...), " "),
			err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Run runs a command as whoever runs the test.
func (c *Cluster) Run(ctx context.Context, name string, args ...string) (string, error) {
	return c.As("").Run(ctx, name, args...)
}

// Themis runs the themis command as whoever runs the test.
func (c *Cluster) Themis(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	return c.Run(ctx, filepath.Join(c.build, "bin", "themis"), args...)
}

// Sbatch submits a script as that user.
func (c *Cluster) Sbatch(user, script string, args ...string) (string, error) {
	return c.As(user).Sbatch(script, args...)
}

// Output is what a batch job has written so far; id as in its file's name.
func (c *Cluster) Output(id string) string {
	data, _ := os.ReadFile(filepath.Join(c.Dir, "jobs", "slurm-"+id+".out"))
	return string(data)
}

// Drain takes a node out of service; Resume brings it back.
func (c *Cluster) Drain(node string) error {
	_, err := c.Run(context.Background(), "scontrol", "update", "nodename="+node, "state=drain", "reason=test")
	return err
}

// Resume brings a drained or down node back.
func (c *Cluster) Resume(node string) error {
	_, err := c.Run(context.Background(), "scontrol", "update", "nodename="+node, "state=resume")
	return err
}

// Job is what `scontrol show job` tells, by name: JobState, Reason, NodeList.
// Of an array or a het job it is the first line.
func (c *Cluster) Job(id string) (map[string]string, error) {
	jobs, err := c.Jobs(id)
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("no job %s", id)
	}
	return jobs[0], nil
}

// Jobs is Job for each task of an array; without id, for every job.
func (c *Cluster) Jobs(id ...string) ([]map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := c.Run(ctx, "scontrol", append([]string{"-o", "-d", "show", "job"}, id...)...)
	if err != nil {
		return nil, err
	}
	var jobs []map[string]string
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "JobId=") {
			jobs = append(jobs, jobFields(line))
		}
	}
	return jobs, nil
}

var fieldStart = regexp.MustCompile(`^[A-Z][A-Za-z/:_]*=`)

// jobFields reads a line of scontrol's. A word that does not begin like a
// field belongs to the value before it.
func jobFields(line string) map[string]string {
	fields := map[string]string{}
	key := ""
	for _, word := range strings.Split(line, " ") {
		if fieldStart.MatchString(word) {
			var value string
			key, value, _ = strings.Cut(word, "=")
			fields[key] = value
		} else if key != "" {
			fields[key] += " " + word
		}
	}
	for key, value := range fields {
		fields[key] = strings.TrimSpace(value)
	}
	return fields
}

// Wait polls a job until cond holds, and returns it as it was then or, with
// the error, as it was last seen. A slurmctld that is down is waited for.
func (c *Cluster) Wait(id string, cond func(job map[string]string) bool, timeout time.Duration) (map[string]string, error) {
	var last map[string]string
	for deadline := time.Now().Add(timeout); ; time.Sleep(100 * time.Millisecond) {
		job, err := c.Job(id)
		if err == nil {
			last = job
			if cond(job) {
				return job, nil
			}
		} else if strings.Contains(err.Error(), "Invalid job id") {
			return last, err
		}
		if time.Now().After(deadline) {
			if err != nil {
				return last, fmt.Errorf("wait %v for job %s: %w", timeout, id, err)
			}
			return last, fmt.Errorf("wait %v for job %s: it is %s, reason %s", timeout, id, last["JobState"], last["Reason"])
		}
	}
}

// In is the condition that a job is in one of the states.
func In(states ...string) func(map[string]string) bool {
	return func(job map[string]string) bool { return slices.Contains(states, job["JobState"]) }
}

// Done is the condition that a job has ended, however.
func Done(job map[string]string) bool {
	return !In("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "REQUEUED", "REQUEUE_HOLD", "STOPPED")(job)
}
