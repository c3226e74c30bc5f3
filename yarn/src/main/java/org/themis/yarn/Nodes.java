// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.NodeAttribute;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.api.records.NodeState;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;
import org.apache.hadoop.yarn.server.resourcemanager.rmnode.RMNode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerNode;

/**
 * The nodes with GPUs and what is on them, as their NodeManagers confirmed. A container counts until
 * its NodeManager has reported its exit and {@link #MARGIN_MS} more: the report says that the
 * container's shell is gone, and a process that did not heed SIGTERM gets its SIGKILL later
 * (yarn.nodemanager.sleep-delay-before-sigkill.ms, 250 ms by default). Of the policy's thread alone.
 */
final class Nodes {
  static final long MARGIN_MS = 1000;

  /** A node as it was looked at. */
  static final class View {
    final NodeId id;
    final String name;
    final String rack;
    final String partition;
    final NodeState state;
    final String why; // it is unhealthy, else ""
    final Resource total;
    final String type; // of its GPUs, "" if it does not say
    final Map<ContainerId, Resource> held = new HashMap<>(); // with GPUs
    int index; // in the snapshot
    long cpus; // used, as are mem and gpus
    long mem;
    int gpus;

    View(SchedulerNode n, String type) {
      this.type = type;
      id = n.getNodeID();
      name = n.getNodeName();
      rack = n.getRackName();
      partition = n.getPartition() == null ? "" : n.getPartition();
      state = n.getRMNode().getState();
      why = "";
      total = n.getTotalResource();
      cpus = n.getAllocatedResource().getVirtualCores();
      mem = n.getAllocatedResource().getMemorySize();
    }

    /** The same node, now that it is unhealthy: the scheduler has dropped it, and all that ran there. */
    View(View old, RMNode n) {
      id = old.id;
      name = old.name;
      rack = old.rack;
      partition = old.partition;
      type = old.type;
      state = NodeState.UNHEALTHY;
      why = n.getHealthReport() == null ? "" : n.getHealthReport().trim();
      total = old.total;
    }

    boolean up() {
      return state == NodeState.RUNNING;
    }

    /** A container that is not to count: it lands under a lease that the core counts. */
    void discount(ContainerId id) {
      Resource r = held.get(id);
      if (r != null) {
        gpus -= Gpus.in(r);
        cpus -= r.getVirtualCores();
        mem -= r.getMemorySize();
      }
    }
  }

  private record Ghost(NodeId node, Resource resource, long until) {}

  private record Type(String name, long until) {}

  private static final String TYPE = "gpu-type";
  private static final long TYPE_MS = 60_000;

  private Map<NodeId, Type> types = new HashMap<>();
  private Map<NodeId, View> views = new LinkedHashMap<>();
  private final Map<ContainerId, Ghost> ghosts = new HashMap<>();
  private final Map<String, NodeId> names = new HashMap<>();

  /**
   * Looks at all nodes, those of the scheduler and, among all that the ResourceManager knows, those
   * that became unhealthy. Call it before looking at applications: see {@link Gangs#look}.
   */
  void look(List<? extends SchedulerNode> nodes, Collection<RMNode> known, long now) {
    Map<NodeId, View> fresh = new LinkedHashMap<>();
    Map<NodeId, Type> told = new HashMap<>();
    names.clear();
    for (SchedulerNode n : nodes) {
      if (Gpus.in(n.getTotalResource()) == 0) {
        continue;
      }
      Type type = types.get(n.getNodeID());
      if (type == null || now >= type.until || type.name.isEmpty()) {
        type = new Type(typeOf(n), now + TYPE_MS);
      }
      told.put(n.getNodeID(), type);
      View v = new View(n, type.name);
      for (RMContainer c : n.getCopiedListOfRunningContainers()) {
        Resource r = c.getAllocatedResource();
        if (Gpus.in(r) > 0) {
          v.held.put(c.getContainerId(), r);
        }
      }
      v.index = fresh.size();
      fresh.put(v.id, v);
      names.put(v.name, v.id);
    }
    for (RMNode n : known) {
      View old = views.get(n.getNodeID());
      if (n.getState() == NodeState.UNHEALTHY && old != null && !fresh.containsKey(old.id)) {
        View v = new View(old, n);
        v.index = fresh.size();
        fresh.put(v.id, v);
      }
    }
    types = told;
    for (View old : views.values()) {
      View is = fresh.get(old.id);
      old.held.forEach(
          (id, r) -> {
            if (is != null && !is.held.containsKey(id)) {
              ghosts.putIfAbsent(id, new Ghost(old.id, r, now + MARGIN_MS));
            }
          });
    }
    ghosts.values().removeIf(g -> now >= g.until || !fresh.containsKey(g.node));
    for (View v : fresh.values()) {
      v.held.values().forEach(r -> v.gpus += Gpus.in(r));
    }
    ghosts.values().forEach(g -> fresh.get(g.node).gpus += Gpus.in(g.resource));
    views = fresh;
  }

  /** As the node's attribute gpu-type says: its NodeManager runs themis gpus --node-attributes. */
  private static String typeOf(SchedulerNode n) {
    try {
      for (NodeAttribute a : n.getRMNode().getAllNodeAttributes()) {
        if (a.getAttributeKey().getAttributeName().equals(TYPE)) {
          return a.getAttributeValue() == null ? "" : a.getAttributeValue();
        }
      }
    } catch (NullPointerException e) { // a ResourceManager without a NodeAttributesManager
      return "";
    }
    return "";
  }

  /** Whether the container still counts on some node. */
  boolean holds(RMContainer c) {
    View v = views.get(c.getAllocatedNode());
    return v != null && v.held.containsKey(c.getContainerId())
        || ghosts.containsKey(c.getContainerId());
  }

  View get(NodeId id) {
    return views.get(id);
  }

  NodeId named(String name) {
    return names.get(name);
  }

  List<View> all() {
    return new ArrayList<>(views.values());
  }
}
