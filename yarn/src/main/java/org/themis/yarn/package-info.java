// SPDX-License-Identifier: Apache-2.0

/**
 * Themis in the ResourceManager. CapacityScheduler stays in charge of queues, limits and users;
 * who gets GPUs next, where and for how long is decided by the core, a process of its own.
 *
 * <p>One thread, {@link org.themis.yarn.ThemisPolicy}'s, shows the core the cluster and brings its
 * decisions back. All other threads of the ResourceManager read what it publishes: an immutable
 * {@link org.themis.yarn.LeaseTable} and the {@link org.themis.yarn.Reclaims} in force. Without a
 * core, or without libthemis.so, both are empty and everything runs as under stock YARN.
 */
package org.themis.yarn;
