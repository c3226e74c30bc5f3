// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn.example;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.api.protocolrecords.AllocateResponse;
import org.apache.hadoop.yarn.api.records.Container;
import org.apache.hadoop.yarn.api.records.ContainerExitStatus;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.ContainerLaunchContext;
import org.apache.hadoop.yarn.api.records.ContainerStatus;
import org.apache.hadoop.yarn.api.records.ExecutionType;
import org.apache.hadoop.yarn.api.records.ExecutionTypeRequest;
import org.apache.hadoop.yarn.api.records.FinalApplicationStatus;
import org.apache.hadoop.yarn.api.records.PreemptionContainer;
import org.apache.hadoop.yarn.api.records.PreemptionContract;
import org.apache.hadoop.yarn.api.records.PreemptionResourceRequest;
import org.apache.hadoop.yarn.api.records.Priority;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceInformation;
import org.apache.hadoop.yarn.api.records.ResourceSizing;
import org.apache.hadoop.yarn.api.records.SchedulingRequest;
import org.apache.hadoop.yarn.api.resource.PlacementConstraints;
import org.apache.hadoop.yarn.client.api.AMRMClient;
import org.apache.hadoop.yarn.client.api.AMRMClient.ContainerRequest;
import org.apache.hadoop.yarn.client.api.NMClient;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.exceptions.YarnException;

/**
 * An application master whose gang can be stopped and goes on later where it was: how an application
 * lives well with leases. All it does for that is in {@link #heed} and {@link #completed}.
 *
 * <p>It asks for all its containers at once, starts them when it has all, lets each count seconds and
 * save the count, and reports progress. When it is told that its containers will be reclaimed it
 * stops them, which makes them save, and asks for all of them again.
 *
 * <pre>
 * java ... CheckpointingMaster --containers 4 --gpus 1 --seconds 60 --state /shared/folder
 * </pre>
 *
 * <p>With {@code --deaf} it does not listen, and what is not saved is lost; with {@code --eager} it
 * starts containers as they come; {@code --fail N} makes the first N containers fail; {@code --ask}
 * tries other ways to ask: opportunistic, scheduling-request; {@code --avoid} names a node that it
 * does not want, {@code --label} the label of nodes that it wants. One thread.
 */
public final class CheckpointingMaster {
  private static final Set<String> FLAGS = Set.of("deaf", "eager");
  private static final Priority PRIORITY = Priority.newInstance(1);

  private final int size;
  private final long seconds;
  private final long beatMs;
  private final boolean deaf;
  private final boolean eager;
  private final String ask;
  private final String avoid; // a node that it does not want
  private final String label; // of nodes that it wants
  private int fail; // containers that are still to fail
  private final Path state;
  private final Resource each;
  private final AMRMClient<ContainerRequest> rm = AMRMClient.createAMRMClient();
  private final NMClient nm = NMClient.createNMClient();
  private final Map<ContainerId, Integer> ranks = new HashMap<>(); // of started containers
  private final List<Container> landed = new ArrayList<>(); // not started yet
  private final Set<Integer> done = new HashSet<>();
  private final Set<ContainerId> stopped = new HashSet<>(); // by us, as we were told to
  private boolean running; // the gang was whole and has started

  private CheckpointingMaster(Map<String, String> options) {
    size = Integer.parseInt(options.getOrDefault("containers", "1"));
    seconds = Long.parseLong(options.getOrDefault("seconds", "10"));
    beatMs = Long.parseLong(options.getOrDefault("heartbeat-ms", "500"));
    deaf = options.containsKey("deaf");
    eager = options.containsKey("eager");
    ask = options.getOrDefault("ask", "");
    avoid = options.getOrDefault("avoid", "");
    label = options.getOrDefault("label", "");
    fail = Integer.parseInt(options.getOrDefault("fail", "0"));
    state = Path.of(options.get("state"));
    each = Resource.newInstance(Integer.parseInt(options.getOrDefault("memory-mb", "64")), 1);
    int gpus = Integer.parseInt(options.getOrDefault("gpus", "0"));
    if (gpus > 0) {
      each.setResourceValue(ResourceInformation.GPU_URI, gpus);
    }
  }

  /** See the class comment. */
  public static void main(String[] args) throws Exception {
    Map<String, String> options = new HashMap<>();
    for (int i = 0; i < args.length; i++) {
      String name = args[i].substring(2);
      options.put(name, FLAGS.contains(name) ? "" : args[++i]);
    }
    new CheckpointingMaster(options).run();
  }

  private void run() throws Exception {
    Configuration conf = new YarnConfiguration();
    Files.createDirectories(state);
    Files.writeString(state.resolve("work.sh"), WORK);
    rm.init(conf);
    rm.start();
    nm.init(conf);
    nm.start();
    rm.registerApplicationMaster("localhost", -1, "");
    say("registered");
    if (!avoid.isEmpty()) {
      rm.updateBlacklist(List.of(avoid), null);
    }
    ask(size);
    while (done.size() < size) {
      AllocateResponse answer;
      try {
        answer = rm.allocate(progress());
      } catch (YarnException e) {
        say("refused: " + e.getMessage().lines().findFirst().orElse(""));
        rm.unregisterApplicationMaster(FinalApplicationStatus.FAILED, e.getMessage(), "");
        return;
      }
      heed(answer);
      for (Container c : answer.getAllocatedContainers()) {
        accept(c);
      }
      start();
      for (ContainerStatus s : answer.getCompletedContainersStatuses()) {
        completed(s);
      }
      Thread.sleep(beatMs);
    }
    say("finished");
    rm.unregisterApplicationMaster(FinalApplicationStatus.SUCCEEDED, "", "");
    nm.stop();
    rm.stop();
  }

  private void ask(int containers) throws IOException {
    if (ask.equals("scheduling-request")) {
      rm.addSchedulingRequests(
          List.of(
              SchedulingRequest.newBuilder()
                  .priority(PRIORITY)
                  .allocationRequestId(1)
                  .allocationTags(Set.of("rank"))
                  .placementConstraintExpression(
                      PlacementConstraints.build(
                          PlacementConstraints.targetNotIn(
                              PlacementConstraints.NODE,
                              PlacementConstraints.PlacementTargets.allocationTag("other"))))
                  .executionType(ExecutionTypeRequest.newInstance())
                  .resourceSizing(ResourceSizing.newInstance(containers, each))
                  .build()));
    }
    for (int i = 0; i < containers && !ask.equals("scheduling-request"); i++) {
      ContainerRequest.ContainerRequestBuilder one =
          ContainerRequest.newBuilder().capability(each).priority(PRIORITY);
      if (!label.isEmpty()) {
        one.nodeLabelsExpression(label);
      }
      if (ask.equals("opportunistic")) {
        one.executionTypeRequest(
            ExecutionTypeRequest.newInstance(ExecutionType.OPPORTUNISTIC, true));
      }
      rm.addContainerRequest(one.build());
    }
    say("asked for " + containers + " x " + each);
  }

  private void accept(Container c) throws IOException {
    // The client repeats what it was asked for until it is told to stop.
    var asked = rm.getMatchingRequests(PRIORITY, "*", each);
    if (!asked.isEmpty() && !asked.get(0).isEmpty()) {
      rm.removeContainerRequest(asked.get(0).iterator().next());
    }
    say("got " + c.getId() + " on " + c.getNodeId());
    landed.add(c);
  }

  /** Starts what has landed: the first time only when the gang is whole. */
  private void start() throws IOException, YarnException {
    boolean whole = ranks.size() + landed.size() + done.size() >= size;
    if (landed.isEmpty() || !running && !eager && !whole) {
      return;
    }
    running = true;
    for (Container c : landed) {
      int rank = 0;
      while (ranks.containsValue(rank) || done.contains(rank)) {
        rank++;
      }
      if (rank >= size) { // one too many
        rm.releaseAssignedContainer(c.getId());
        continue;
      }
      ranks.put(c.getId(), rank);
      nm.startContainer(
          c,
          ContainerLaunchContext.newInstance(
              null, null, List.of(fail-- > 0 ? "sleep 1; exit 1" : work(rank)), null, null, null));
    }
    landed.clear();
    say("started");
  }

  /**
   * Counts seconds from where it was, and saves the count. A script of its own, as NodeManagers put
   * commands between double quotes.
   */
  private static final String WORK =
      """
      save=$1/rank$2
      n=$(cat "$save" 2>/dev/null || echo 0)
      while [ "$n" -lt "$3" ]; do
        sleep 1
        n=$((n + 1))
        echo "$n" >"$save.new" && mv "$save.new" "$save"
      done
      """;

  private String work(int rank) {
    return "/bin/sh " + state.resolve("work.sh") + " " + state + " " + rank + " " + seconds;
  }

  /** Gives back what will be reclaimed, while there is time to save. */
  private void heed(AllocateResponse answer) throws IOException, YarnException {
    if (deaf || answer.getPreemptionMessage() == null) {
      return;
    }
    PreemptionContract contract = answer.getPreemptionMessage().getContract();
    if (contract == null) {
      return;
    }
    for (PreemptionContainer p : contract.getContainers()) {
      if (ranks.containsKey(p.getId()) && stopped.add(p.getId())) {
        say("gives back " + p.getId() + ", asked for: " + wanted(contract));
        rm.releaseAssignedContainer(p.getId());
      }
    }
  }

  private static String wanted(PreemptionContract contract) {
    return contract.getResourceRequest().stream()
        .map(PreemptionResourceRequest::getResourceRequest)
        .map(r -> r.getNumContainers() + " x " + r.getCapability())
        .collect(Collectors.joining(", "));
  }

  private void completed(ContainerStatus s) throws IOException {
    Integer rank = ranks.remove(s.getContainerId());
    say("ended " + s.getContainerId() + " with " + s.getExitStatus());
    if (rank == null) {
      landed.removeIf(c -> c.getId().equals(s.getContainerId()));
      ask(1);
      return;
    }
    boolean reclaimed =
        stopped.remove(s.getContainerId()) || s.getExitStatus() == ContainerExitStatus.PREEMPTED;
    if (s.getExitStatus() == ContainerExitStatus.SUCCESS) {
      done.add(rank);
    } else if (!reclaimed) {
      ask(1); // it failed: again, beside the others
    } else if (ranks.isEmpty()) {
      running = false;
      ask(size - done.size()); // all of it is gone: again, as a whole
    }
  }

  private float progress() throws IOException {
    long sum = 0;
    for (int rank = 0; rank < size; rank++) {
      Path save = state.resolve("rank" + rank);
      if (Files.exists(save)) {
        sum += Long.parseLong(Files.readString(save).trim());
      }
    }
    return Math.min(1f, (float) sum / (size * seconds));
  }

  private void say(String what) throws IOException {
    String line = Instant.now() + " " + what + "\n";
    Files.writeString(
        state.resolve("events"), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    System.out.print(line);
  }
}
