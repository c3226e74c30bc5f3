// SPDX-License-Identifier: Apache-2.0

package privateyarn

import (
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const log4j = `log4j.rootLogger=INFO,stdout
log4j.logger.org.themis=DEBUG
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{ISO8601} %p %c{1} [%t]: %m%n
`

// site are the properties of yarn-site.xml that ResourceManager and NodeManagers
// share.
func (c *Cluster) site() map[string]string {
	local := func(port int) string { return fmt.Sprintf("localhost:%d", port) }
	p := map[string]string{
		"yarn.resourcemanager.bind-host":                                   "127.0.0.1",
		"yarn.resourcemanager.connect.retry-interval.ms":                   "1000",
		"yarn.resourcemanager.nodemanagers.heartbeat-interval-ms":          "500",
		"yarn.resourcemanager.scheduler.class":                             "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler",
		"yarn.scheduler.include-port-in-node-name":                         "true",
		"yarn.scheduler.minimum-allocation-mb":                             "16",
		"yarn.scheduler.capacity.schedule-asynchronously.enable":           strconv.FormatBool(!c.opt.Heartbeats),
		"yarn.resource-types":                                              "yarn.io/gpu",
		"yarn.application.classpath":                                       strings.ReplaceAll(c.classpath("conf")+":"+c.shellDir()+"/*", ":", ","),
		"yarn.nodemanager.vmem-check-enabled":                              "false",
		"yarn.nodemanager.pmem-check-enabled":                              "false",
		"yarn.nodemanager.delete.debug-delay-sec":                          "0",
		"yarn.nodemanager.disk-health-checker.enable":                      "false",
		"yarn.nodemanager.env-whitelist":                                   "JAVA_HOME",
		"yarn.am.liveness-monitor.expiry-interval-ms":                      "60000",
		"yarn.nm.liveness-monitor.expiry-interval-ms":                      "20000",
		"yarn.resourcemanager.nm.liveness-monitor.expiry-interval-ms":      "20000",
		"yarn.resourcemanager.recovery.enabled":                            "true",
		"yarn.resourcemanager.store.class":                                 "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore",
		"yarn.resourcemanager.fs.state-store.uri":                          "file://" + filepath.Join(c.Dir, "state"),
		"yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "1000",
		"yarn.node-labels.fs-store.root-dir":                               "file://" + filepath.Join(c.Dir, "labels"),
		"yarn.resourcemanager.nodes.exclude-path":                          c.excluded(),
		"hadoop.http.staticuser.user":                                      "root",
	}
	for i, ports := range c.ports.rms {
		of := "" // as in yarn.resourcemanager.address.rm1
		if c.opt.HA {
			of = "." + rm(i)
		}
		p["yarn.resourcemanager.hostname"+of] = "localhost"
		for k, service := range []string{"", "scheduler.", "resource-tracker.", "admin.", "webapp."} {
			p["yarn.resourcemanager."+service+"address"+of] = local(ports[k])
		}
	}
	if c.opt.HA {
		maps.Copy(p, map[string]string{
			"yarn.resourcemanager.ha.enabled":                    "true",
			"yarn.resourcemanager.ha.rm-ids":                     rm(0) + "," + rm(1),
			"yarn.resourcemanager.cluster-id":                    "pair",
			"yarn.resourcemanager.ha.automatic-failover.enabled": "false",
			"yarn.client.failover-sleep-base-ms":                 "200",
			"yarn.client.failover-sleep-max-ms":                  "1000",
		})
	}
	if c.opt.Themis {
		maps.Copy(p, map[string]string{
			"yarn.resourcemanager.scheduler.class":                       "org.themis.yarn.ThemisCapacityScheduler",
			"yarn.scheduler.app-placement-allocator.class":               "org.themis.yarn.LeasedPlacementAllocator",
			"yarn.resourcemanager.application-master-service.processors": "org.themis.yarn.ThemisProcessor",
			"yarn.resourcemanager.scheduler.monitor.enable":              "true",
			"yarn.resourcemanager.scheduler.monitor.policies":            "org.themis.yarn.ThemisPolicy",
			"themis.config":  filepath.Join(c.Dir, "themis.toml"),
			"themis.binary":  filepath.Join(c.build, "bin/themis"),
			"themis.socket":  filepath.Join(c.Dir, "attach.sock"), // nobody listens there
			"themis.library": filepath.Join(c.build, "lib/libthemis.so"),
		})
		if c.opt.Library != "" {
			p["themis.library"] = c.opt.Library
		}
	}
	maps.Copy(p, c.opt.Site)
	return p
}

// rmSite is the yarn-site.xml of a ResourceManager.
func (c *Cluster) rmSite(i int) map[string]string {
	p := c.site()
	if c.opt.HA {
		p["yarn.resourcemanager.ha.id"] = rm(i)
	}
	if c.opt.Themis {
		p["themis.state"] = filepath.Join(c.Dir, rm(i), "themis")
	}
	maps.Copy(p, c.opt.Site)
	return p
}

func (c *Cluster) nodeSite(i int) map[string]string {
	p := c.site()
	port := c.ports.nodes[i]
	dir := filepath.Join(c.Dir, node(i))
	local := func(port int) string { return fmt.Sprintf("%s:%d", address(i), port) }
	maps.Copy(p, map[string]string{
		"yarn.nodemanager.hostname":                  address(i),
		"yarn.nodemanager.bind-host":                 address(i),
		"yarn.nodemanager.address":                   local(port[0]),
		"yarn.nodemanager.localizer.address":         local(port[1]),
		"yarn.nodemanager.webapp.address":            local(port[2]),
		"yarn.nodemanager.collector-service.address": local(port[3]),
		"yarn.nodemanager.local-dirs":                filepath.Join(dir, "local"),
		"yarn.nodemanager.log-dirs":                  filepath.Join(dir, "logs"),
		"yarn.nodemanager.resource.memory-mb":        strconv.Itoa(c.opt.MemoryMiB),
		"yarn.nodemanager.resource.cpu-vcores":       strconv.Itoa(c.opt.VCores),
		"yarn.nodemanager.recovery.enabled":          "true",
		"yarn.nodemanager.recovery.supervised":       "true",
		"yarn.nodemanager.recovery.dir":              filepath.Join(dir, "recovery"),
	})
	if i < len(c.opt.NodeSite) {
		maps.Copy(p, c.opt.NodeSite[i])
	}
	return p
}

// capacity is capacity-scheduler.xml: even leaves, each of which may grow to the
// whole cluster.
func (c *Cluster) capacity() map[string]string {
	const queue = "yarn.scheduler.capacity."
	p := map[string]string{
		queue + "resource-calculator":         "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
		queue + "maximum-am-resource-percent": "1",
		queue + "root.queues":                 strings.Join(c.opt.Queues, ","),
	}
	for _, q := range c.opt.Queues {
		leaf := queue + "root." + q + "."
		p[leaf+"capacity"] = strconv.FormatFloat(100/float64(len(c.opt.Queues)), 'f', -1, 64)
		p[leaf+"maximum-capacity"] = "100"
		p[leaf+"user-limit-factor"] = "100"
		p[leaf+"disable_preemption"] = "true"
	}
	for name, value := range c.queues {
		p[queue+name] = value
	}
	return p
}

func (c *Cluster) writeFiles() error {
	for _, sub := range []string{"conf", "log", "state", "apps"} {
		if err := os.Mkdir(filepath.Join(c.Dir, sub), 0o755); err != nil {
			return err
		}
	}
	core := map[string]string{"fs.defaultFS": "file:///", "hadoop.tmp.dir": filepath.Join(c.Dir, "tmp"), "hadoop.security.authentication": "simple"}
	gpus := map[string]string{"yarn.nodemanager.resource-type.yarn.io/gpu": strconv.Itoa(c.opt.GPUs)}
	files := map[string]string{
		"conf/core-site.xml": properties(core), "conf/yarn-site.xml": properties(c.site()),
		"conf/log4j.properties": log4j, "conf/excluded": "", "themis.toml": c.opt.ThemisTOML,
	}
	for i := range c.ports.rms {
		if err := os.Mkdir(filepath.Join(c.Dir, rm(i)), 0o755); err != nil {
			return err
		}
		files[rm(i)+"/core-site.xml"] = properties(core)
		files[rm(i)+"/yarn-site.xml"] = properties(c.rmSite(i))
	}
	for i := range c.opt.Nodes {
		if err := os.Mkdir(filepath.Join(c.Dir, node(i)), 0o755); err != nil {
			return err
		}
		files[node(i)+"/core-site.xml"] = properties(core)
		files[node(i)+"/yarn-site.xml"] = properties(c.nodeSite(i))
		files[node(i)+"/node-resources.xml"] = properties(gpus)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return c.writeQueues()
}

func (c *Cluster) writeQueues() error {
	for i := range c.ports.rms {
		if err := os.WriteFile(filepath.Join(c.Dir, rm(i), "capacity-scheduler.xml"), []byte(properties(c.capacity())), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// properties writes Hadoop's XML, sorted by name.
func properties(p map[string]string) string {
	var b strings.Builder
	b.WriteString("<?xml version=\"1.0\"?>\n<configuration>\n")
	for _, name := range slices.Sorted(maps.Keys(p)) {
		b.WriteString("<property><name>")
		xml.EscapeText(&b, []byte(name))
		b.WriteString("</name><value>")
		xml.EscapeText(&b, []byte(p[name]))
		b.WriteString("</value></property>\n")
	}
	return b.String() + "</configuration>\n"
}
