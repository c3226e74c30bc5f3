// SPDX-License-Identifier: Apache-2.0

package privateslurm

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// baseConf is the slurm.conf of every cluster: a scheduler in a hurry, and no
// need for cgroups or cpu binding. A line of Options.Conf replaces the line
// of the same key.
const baseConf = `ClusterName=private
SlurmctldHost=@HOST@(127.0.0.1)
SlurmctldPort=@PORT0@
SlurmUser=@USER@
SlurmdUser=@USER@
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
AuthInfo=socket=@DIR@/run/munge.sock,cred_expire=10
CredType=cred/munge
StateSaveLocation=@DIR@/state
SlurmdSpoolDir=@DIR@/spool/%n
SlurmctldPidFile=@DIR@/run/slurmctld.pid
SlurmdPidFile=@DIR@/run/slurmd.%n.pid
SlurmctldLogFile=@DIR@/log/slurmctld.log
SlurmdLogFile=@DIR@/log/slurmd.%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
LogTimeFormat=iso8601_ms
MailProg=/bin/true
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=0,bf_continue,batch_sched_delay=0
PriorityType=priority/multifactor
PriorityWeightJobSize=1000
PriorityWeightPartition=1000
DefMemPerCPU=100
MaxArraySize=10001
MaxJobCount=20000
MinJobAge=600
KillWait=5
InactiveLimit=0
Waittime=0
GresTypes=gpu
EnforcePartLimits=NO
`

// cgroupConf names a plugin that leaves the machine's cgroups alone as long as
// nothing uses them. The one for cgroup v2, or looking which there is, would
// need rights.
const cgroupConf = "CgroupPlugin=cgroup/v1\n"

var confKey = regexp.MustCompile(`^[A-Za-z]+`)

// slurmConf is the text of slurm.conf; ports are the controller's and then
// one per node.
func (c *Cluster) slurmConf(ports []int) string {
	own := map[string]bool{}
	for _, line := range strings.Split(c.opt.Conf, "\n") {
		own[strings.ToLower(confKey.FindString(line))] = true
	}
	delete(own, "nodename")
	delete(own, "partitionname")

	base := baseConf
	if c.opt.Themis {
		base = strings.NewReplacer("select/cons_tres", "select/themis", "priority/multifactor", "priority/themis").Replace(base) +
			"JobSubmitPlugins=themis\nPluginDir=" + filepath.Join(c.build, "lib") + ":" + c.stockPlugins + "\n"
	}
	var b strings.Builder
	for _, line := range strings.Split(base, "\n") {
		if !own[strings.ToLower(confKey.FindString(line))] {
			b.WriteString(line + "\n")
		}
	}
	b.WriteString(strings.TrimSpace(c.opt.Conf) + "\n")

	fmt.Fprintf(&b, "NodeName=DEFAULT Sockets=2 CoresPerSocket=%d ThreadsPerCore=1 RealMemory=%d TmpDisk=10000 State=UNKNOWN\n",
		c.opt.CPUs/2, c.opt.MemoryMiB)
	for i := range c.opt.Nodes {
		gres := fmt.Sprintf("Gres=gpu:%d", c.opt.GPUs)
		if t := c.gpuType(i); t != "" {
			gres = fmt.Sprintf("Gres=gpu:%s:%d", t, c.opt.GPUs)
		}
		if c.opt.GPUs == 0 {
			gres = ""
		}
		fmt.Fprintf(&b, "NodeName=%s NodeHostname=@HOST@ NodeAddr=127.0.0.1 Port=%d %s\n", nodeName(i), ports[1+i], gres)
	}
	fmt.Fprintf(&b, "PartitionName=debug Nodes=n[1-%d] Default=YES MaxTime=INFINITE State=UP\n", c.opt.Nodes)

	return strings.NewReplacer("@DIR@", c.Dir, "@HOST@", c.host, "@USER@", c.self.Username,
		"@PORT0@", strconv.Itoa(ports[0])).Replace(b.String())
}

// gresConf gives each node its GPUs, half of them on each socket. slurmd wants
// character devices and follows links, so each is a link to /dev/null.
func (c *Cluster) gresConf() string {
	var b strings.Builder
	for i := range c.opt.Nodes {
		typ := ""
		if t := c.gpuType(i); t != "" {
			typ = "Type=" + t + " "
		}
		for half := range 2 {
			first, last := half*c.opt.GPUs/2, (half+1)*c.opt.GPUs/2-1
			if last < first {
				continue
			}
			fmt.Fprintf(&b, "NodeName=%s Name=gpu %sFile=%s/dev/gpu[%d-%d] Cores=%d-%d\n", nodeName(i), typ, c.Dir,
				first, last, half*c.opt.CPUs/2, (half+1)*c.opt.CPUs/2-1)
		}
	}
	return b.String()
}

func nodeName(i int) string { return fmt.Sprintf("n%d", 1+i) }

func (c *Cluster) gpuType(node int) string {
	if len(c.opt.GPUTypes) == 0 {
		return ""
	}
	return c.opt.GPUTypes[node%len(c.opt.GPUTypes)]
}

// writeNames writes the passwd, group and hosts files that nss_wrapper shows
// the cluster's processes: the machine's own names, the test users, and this
// host as a loopback address. No user is created on the machine.
func (c *Cluster) writeNames() error {
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return err
	}
	group, err := os.ReadFile("/etc/group")
	if err != nil {
		return err
	}
	p, g := strings.TrimSpace(string(passwd))+"\n", strings.TrimSpace(string(group))+"\n"
	if _, err := user.LookupId(c.self.Uid); err != nil {
		p += fmt.Sprintf("%s:x:%s:%s::%s/home:/bin/bash\n", c.self.Username, c.self.Uid, c.self.Gid, c.Dir)
	}
	if c.RealUsers {
		for i, name := range c.opt.Users {
			p += fmt.Sprintf("%s:x:%d:%d::%s/home/%s:/bin/bash\n", name, firstUID+i, firstUID+i, c.Dir, name)
			g += fmt.Sprintf("%s:x:%d:\n", name, firstUID+i)
		}
	}
	for name, text := range map[string]string{
		"passwd": p, "group": g, "hosts": fmt.Sprintf("127.0.0.1 localhost\n127.0.0.1 %s\n", c.host),
	} {
		if err := os.WriteFile(filepath.Join(c.Dir, "conf", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// self is the user who runs this process, known to the machine or not.
func currentUser() *user.User {
	uid, gid := strconv.Itoa(os.Getuid()), strconv.Itoa(os.Getgid())
	if u, err := user.LookupId(uid); err == nil {
		return u
	}
	return &user.User{Uid: uid, Gid: gid, Username: "user" + uid}
}
