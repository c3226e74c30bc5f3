// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceInformation;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.AbstractLeafQueue;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CSQueue;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.UsersManager;
import org.apache.hadoop.yarn.util.resource.ResourceCalculator;
import org.apache.hadoop.yarn.util.resource.Resources;

/**
 * What CapacityScheduler's own limits leave of the cluster: a gang beyond them would be granted GPUs
 * that it cannot take. The conditions of AbstractCSQueue.canAssignToThisQueue and
 * AbstractLeafQueue.canAssignToUser, for all containers of a gang. Of the policy's thread alone.
 */
final class Limits {
  private Limits() {}

  /** Which limit the gang would exceed if it started now, "" if none. */
  static String over(CapacityScheduler scheduler, AbstractLeafQueue leaf, String user, Gang g) {
    ResourceCalculator calculator = scheduler.getResourceCalculator();
    Resource cluster = scheduler.getClusterResource();
    Resource all = Resources.multiply(g.each, g.size);
    for (CSQueue q = leaf; q != null && q.getParent() != null; q = q.getParent()) {
      Resource most = q.getEffectiveMaxCapacity(g.partition);
      Resource then = Resources.add(q.getQueueResourceUsage().getUsed(g.partition), all);
      if (most != null && Resources.greaterThan(calculator, cluster, then, most)) {
        return "queue " + q.getQueuePath() + " is at its maximum, " + words(most);
      }
    }
    UsersManager.User u = leaf.getUser(user);
    float factor = leaf.getUserLimitFactor();
    if (u == null || factor < 0) {
      return "";
    }
    // What a user may have among others rises with what it has; this is the end of it. It may be
    // exceeded by one container.
    Resource most = Resources.multiply(leaf.getEffectiveCapacity(g.partition), factor);
    Resource before =
        Resources.add(u.getUsed(g.partition), Resources.multiply(g.each, Math.max(g.size - 1, 0)));
    if (Resources.greaterThan(calculator, cluster, before, most)) {
      return "user " + user + " is at its maximum in queue " + leaf.getQueuePath() + ", " + words(most);
    }
    return "";
  }

  private static String words(Resource r) {
    StringBuilder said = new StringBuilder();
    for (ResourceInformation i : r.getResources()) {
      boolean memory = ResourceInformation.MEMORY_URI.equals(i.getName());
      String unit = memory ? " MiB" : ResourceInformation.GPU_URI.equals(i.getName()) ? " GPUs" : " " + i.getName();
      said.append(said.length() == 0 ? "" : ", ").append(i.getValue()).append(unit);
    }
    return said.toString();
  }
}
