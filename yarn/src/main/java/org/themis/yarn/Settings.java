// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;

/**
 * What an admin may set in yarn-site.xml; every setting has a default. How the auction is held is
 * set in themis.toml.
 *
 * @param cluster name of the cluster, as the core shows it
 * @param config themis.toml
 * @param state folder of the ledger of a core that the ResourceManager launches
 * @param binary the themis executable
 * @param socket where a core listens that was started by other means; if none does, one is launched
 * @param uid of this process: it and root may speak to the core as its host
 */
record Settings(
    String cluster, String config, String state, String binary, String socket, int uid) {
  static final String LIBRARY = "themis.library";
  static final String CONFIG = "themis.config";
  static final String STATE = "themis.state";
  static final String BINARY = "themis.binary";
  static final String SOCKET = "themis.socket";

  static Settings of(Configuration conf) throws Exception {
    return new Settings(
        conf.getTrimmed(YarnConfiguration.RM_CLUSTER_ID, "yarn"),
        conf.getTrimmed(CONFIG, "/etc/hadoop/themis.toml"),
        conf.getTrimmed(STATE, "/var/lib/themis"),
        conf.getTrimmed(BINARY, "/usr/bin/themis"),
        conf.getTrimmed(SOCKET, "/run/themis/themis.sock"),
        (Integer) Files.getAttribute(Path.of("/proc/self"), "unix:uid"));
  }
}
