// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.yarn.api.records.NodeId;

/**
 * The containers that a gang may still start: so many on each node of its lease. Places are counted
 * off as containers are allocated, so a lease lets in its gang and no container more.
 *
 * <p>{@link #admits} is read by scheduler threads; {@link #take} is called by the thread that
 * commits an allocation, {@link #allow} and {@link #close} by the policy's.
 */
final class Lease {
  final long id;
  /** GPUs of each container. */
  final int gpus;
  private final Set<NodeId> except; // of a lease for any node: those that others have
  private final AtomicInteger anywhere = new AtomicInteger();
  private final Map<NodeId, AtomicInteger> places = new ConcurrentHashMap<>();

  /** A lease with no places yet; {@code except} is null unless it is for any node. */
  Lease(long id, int gpus, Set<NodeId> except) {
    this.id = id;
    this.gpus = gpus;
    this.except = except;
  }

  /** Whether it is for any node but some. */
  boolean anywhere() {
    return except != null;
  }

  private AtomicInteger on(NodeId node) {
    if (except == null) {
      return places.get(node);
    }
    return except.contains(node) ? null : anywhere;
  }

  /** Whether a container with so many GPUs may start on the node. */
  boolean admits(NodeId node, int asked) {
    AtomicInteger left = on(node);
    return left != null && left.get() > 0 && asked <= gpus;
  }

  /** Whether it has any place left. */
  boolean open() {
    if (anywhere.get() > 0) {
      return true;
    }
    for (AtomicInteger n : places.values()) {
      if (n.get() > 0) {
        return true;
      }
    }
    return false;
  }

  /** Counts off one place. False if there was none. */
  boolean take(NodeId node, int asked) {
    if (asked > gpus) {
      return false;
    }
    AtomicInteger left = on(node);
    while (left != null) {
      int n = left.get();
      if (n <= 0) {
        return false;
      }
      if (left.compareAndSet(n, n - 1)) {
        return true;
      }
    }
    return false;
  }

  /** Opens places for more containers on a node, or anywhere if the lease is for any node. */
  void allow(NodeId node, int containers) {
    if (except != null) {
      anywhere.addAndGet(containers);
    } else {
      places.computeIfAbsent(node, n -> new AtomicInteger()).addAndGet(containers);
    }
  }

  /** Lets no more containers in. */
  void close() {
    anywhere.set(0);
    places.values().forEach(n -> n.set(0));
  }
}
