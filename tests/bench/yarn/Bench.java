// SPDX-License-Identifier: Apache-2.0

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.Container;
import org.apache.hadoop.yarn.api.records.ContainerState;
import org.apache.hadoop.yarn.api.records.ContainerStatus;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.api.records.Priority;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.resourcemanager.MockAM;
import org.apache.hadoop.yarn.server.resourcemanager.MockNM;
import org.apache.hadoop.yarn.server.resourcemanager.MockRM;
import org.apache.hadoop.yarn.server.resourcemanager.MockRMAppSubmissionData;
import org.apache.hadoop.yarn.server.resourcemanager.MockRMAppSubmitter;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerNode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.SchedulingMode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.placement.AppPlacementAllocator;
import org.apache.hadoop.yarn.server.scheduler.SchedulerRequestKey;
import org.apache.hadoop.yarn.util.resource.ResourceUtils;

/**
 * One pass of the YARN benchmark: a ResourceManager of the release schedules containers on 1,000
 * nodes of 8 GPUs, asynchronously as it does by default. Prints a line per figure: name, tab, value.
 *
 * <p>Hadoop's own scheduler load simulator does not do: its newest release is 3.4.3, whose scheduler
 * wraps a CapacityScheduler of that release. So nodes and application masters are those of Hadoop's
 * own tests (MockRM, MockNM, MockAM): they call the ResourceManager's services in this process,
 * without the network; all from there on is the real thing. With {@code themis} that includes a core
 * of its own, which grants leases for all GPUs.
 *
 * <p>Arguments: {@code stock} or {@code themis}, the number of rounds, applications, containers of
 * each, and a folder for the core's state. In a round all applications ask at once, and all
 * containers end once the last has started. The first round of each kind is a warm-up.
 */
final class Bench {
  private static final int NODES = 1000;
  private static final int GPUS = 8;
  private static final String GPU = "yarn.io/gpu";
  private static final long PATIENCE_S = 120;

  private final MockRM rm;
  private final CapacityScheduler scheduler;
  private final Map<NodeId, MockNM> nodes = new HashMap<>();
  private final List<MockAM> masters = new ArrayList<>();
  private final int containers; // of each application
  private long allocated; // so far

  public static void main(String[] args) throws Exception {
    Bench b = new Bench(args[0].equals("themis"), Integer.parseInt(args[2]), Integer.parseInt(args[3]), args[4]);
    int rounds = Integer.parseInt(args[1]);
    for (int gpus = 0; gpus <= 1; gpus++) {
      for (int i = 0; i <= rounds; i++) {
        b.round(gpus, i > 0);
      }
    }
    b.rm.stop();
    System.exit(0);
  }

  private Bench(boolean themis, int applications, int containers, String dir) throws Exception {
    this.containers = containers;
    Configuration conf = conf(themis, dir);
    ResourceUtils.resetResourceTypes(conf);
    rm = new MockRM(conf);
    rm.start();
    scheduler = (CapacityScheduler) rm.getResourceScheduler();
    for (int i = 0; i < NODES; i++) {
      MockNM node = rm.registerNode("127.0.0.1:" + (1 + i), resource(64 * 1024, 64, GPUS));
      nodes.put(node.getNodeId(), node);
    }
    for (int i = 0; i < applications; i++) {
      RMApp app =
          MockRMAppSubmitter.submit(
              rm,
              MockRMAppSubmissionData.Builder.createWithMemory(1024, rm)
                  .withUser("user" + i % 10)
                  .withUnmanagedAM(true)
                  .withQueue("a")
                  .build());
      masters.add(MockRM.launchUAM(app, rm, nodes.values().iterator().next()));
      masters.get(i).registerAppAttempt();
    }
  }

  private static Configuration conf(boolean themis, String dir) {
    Configuration conf = new YarnConfiguration();
    String queue = "yarn.scheduler.capacity.";
    conf.set(queue + "resource-calculator", "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator");
    conf.set(queue + "root.queues", "a");
    conf.set(queue + "root.a.capacity", "100");
    conf.set(queue + "root.a.user-limit-factor", "100");
    conf.set(queue + "maximum-am-resource-percent", "1");
    conf.set(queue + "schedule-asynchronously.enable", "true");
    conf.set("yarn.resource-types", GPU);
    conf.set("yarn.scheduler.include-port-in-node-name", "true"); // all nodes are one host
    conf.set("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", "3600000"); // ours are silent
    conf.set("yarn.nm.liveness-monitor.expiry-interval-ms", "3600000");
    conf.set("yarn.am.liveness-monitor.expiry-interval-ms", "3600000");
    conf.set(
        "yarn.resourcemanager.scheduler.class",
        themis ? "org.themis.yarn.ThemisCapacityScheduler" : CapacityScheduler.class.getName());
    if (themis) {
      conf.set("yarn.scheduler.app-placement-allocator.class", "org.themis.yarn.LeasedPlacementAllocator");
      conf.set("yarn.resourcemanager.application-master-service.processors", "org.themis.yarn.ThemisProcessor");
      conf.set("yarn.resourcemanager.scheduler.monitor.enable", "true");
      conf.set("yarn.resourcemanager.scheduler.monitor.policies", "org.themis.yarn.ThemisPolicy");
      conf.set("themis.library", System.getProperty("themis.library"));
      conf.set("themis.binary", System.getProperty("themis.binary"));
      conf.set("themis.config", dir + "/themis.toml");
      conf.set("themis.state", dir + "/state");
      conf.set("themis.socket", dir + "/none.sock");
    }
    return conf;
  }

  private static Resource resource(int mib, int cores, int gpus) {
    Resource r = Resource.newInstance(mib, cores);
    r.setResourceValue(GPU, gpus);
    return r;
  }

  private void round(int gpus, boolean counts) throws Exception {
    long all = (long) masters.size() * containers;
    SchedulerRequestKey key = null;
    long asked = System.nanoTime();
    for (MockAM am : masters) {
      ResourceRequest r =
          ResourceRequest.newInstance(
              Priority.newInstance(gpus + 1), ResourceRequest.ANY, resource(1024, 1, gpus), containers);
      key = SchedulerRequestKey.create(r);
      am.allocate(List.of(r), List.of());
    }
    long check = gpus == 0 || !counts ? 0 : precheck(key); // while they wait, or are served
    long begin = 0;
    long end = 0;
    long used = 0;
    long cpu = policy();
    for (long now = asked; end == 0; now = System.nanoTime()) {
      long n = scheduler.getRootQueueMetrics().getAggregateAllocatedContainers() - allocated;
      if (n > 0 && begin == 0) {
        begin = now;
        used = cpu();
      }
      if (n >= all) {
        end = now;
        used = cpu() - used;
      }
      if (now - asked > PATIENCE_S * 1_000_000_000L) {
        throw new IllegalStateException(n + " of " + all + " containers in " + PATIENCE_S + " s");
      }
      Thread.sleep(1);
    }
    allocated += all;
    if (counts) {
      String kind = gpus == 0 ? "cpu" : "gpu";
      System.out.printf("%s containers per second\t%.0f%n", kind, all / ((end - begin) / 1e9));
      System.out.printf("%s containers per CPU second\t%.0f%n", kind, all / (used / 1e9));
      System.out.printf("%s wait for the first container, ms\t%.0f%n", kind, (begin - asked) / 1e6);
      System.out.printf("%s policy thread, %% of a CPU\t%.1f%n", kind, 100.0 * (policy() - cpu) / (end - asked));
      if (gpus > 0) {
        System.out.printf("precheckNode of a waiting ask, ns\t%d%n", check);
      }
    }
    finish();
  }

  /** Mean of precheckNode of one application on all nodes, in ns. */
  private long precheck(SchedulerRequestKey key) {
    AppPlacementAllocator<SchedulerNode> allocator =
        scheduler
            .getApplicationAttempt(masters.get(masters.size() - 1).getApplicationAttemptId())
            .getAppSchedulingInfo()
            .getAppPlacementAllocator(key);
    if (allocator == null) {
      return 0;
    }
    List<SchedulerNode> all = new ArrayList<>();
    nodes.keySet().forEach(n -> all.add(scheduler.getSchedulerNode(n)));
    int calls = 0;
    long begin = System.nanoTime();
    for (int i = 0; i < 20; i++) {
      for (SchedulerNode n : all) {
        allocator.precheckNode(n, SchedulingMode.RESPECT_PARTITION_EXCLUSIVITY, Optional.empty());
        calls++;
      }
    }
    return (System.nanoTime() - begin) / calls;
  }

  /** CPU time of this process so far, in ns; the core is another one. */
  private static long cpu() {
    return ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class).getProcessCpuTime();
  }

  /** CPU time of the policy's thread so far, in ns. */
  private static long policy() {
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    for (ThreadInfo t : threads.getThreadInfo(threads.getAllThreadIds())) {
      if (t != null && t.getThreadName().contains("ThemisPolicy")) {
        return threads.getThreadCpuTime(t.getThreadId());
      }
    }
    return 0;
  }

  /** Ends all containers, and waits until a policy has seen it and nodes count as free. */
  private void finish() throws Exception {
    Map<NodeId, Map<ApplicationId, List<ContainerStatus>>> done = new HashMap<>();
    for (MockAM am : masters) {
      ApplicationId app = am.getApplicationAttemptId().getApplicationId();
      for (Container c : am.allocate(List.of(), List.of()).getAllocatedContainers()) {
        done.computeIfAbsent(c.getNodeId(), n -> new HashMap<>())
            .computeIfAbsent(app, a -> new ArrayList<>())
            .add(ContainerStatus.newInstance(c.getId(), ContainerState.COMPLETE, "", 0));
      }
    }
    for (Map.Entry<NodeId, Map<ApplicationId, List<ContainerStatus>>> e : done.entrySet()) {
      nodes.get(e.getKey()).nodeHeartbeat(e.getValue(), true);
    }
    for (MockAM am : masters) {
      am.allocate(List.of(), List.of()); // it hears of them
    }
    Thread.sleep(6000); // a gang settles for five seconds
  }
}
