// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * libthemis.so in this process (cgo/themis.h, cgo/jni.c). No call waits for the core. A Go library
 * cannot be unloaded, so there is one per process, opened while this ResourceManager is active.
 *
 * <p>Only the policy's thread calls, except that hints may be checked, and the shim closed, by any.
 */
final class Shim {
  /** THEMIS_ABI that this jar was built for. */
  private static final int ABI = 3;

  private static final Logger LOG = LoggerFactory.getLogger(Shim.class);

  private enum State {
    UNTRIED,
    LOADED,
    UNUSABLE
  }

  private static State state = State.UNTRIED;

  private Shim() {}

  /** Loads the library once. False if it cannot be used, which is logged once, too. */
  static synchronized boolean load(Configuration conf) {
    if (state == State.UNTRIED) {
      state = State.UNUSABLE;
      try {
        Path library = library(conf);
        if (!Files.exists(library)) {
          throw new UnsatisfiedLinkError(library + " is missing");
        }
        System.load(library.toString());
        if (abi() != ABI) {
          throw new UnsatisfiedLinkError(
              library + " has ABI " + abi() + ", themis-yarn.jar needs " + ABI);
        }
        state = State.LOADED;
      } catch (Throwable e) {
        LOG.error("themis: GPUs are scheduled as without Themis: {}", e.getMessage());
      }
    }
    return state == State.LOADED;
  }

  /** {@code themis.library}, else libthemis.so beside this jar. */
  private static Path library(Configuration conf) throws Exception {
    String named = conf.getTrimmed(Settings.LIBRARY, "");
    if (!named.isEmpty()) {
      return Path.of(named).toAbsolutePath();
    }
    File jar = new File(Shim.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    return jar.toPath().resolveSibling("libthemis.so");
  }

  /** Opens the link to a core. Null, or what is wrong with the settings. */
  static String open(Settings s) {
    return text(
        open(bytes(s.cluster()), bytes(s.config()), bytes(s.state()), bytes(s.binary()),
            bytes(s.socket()), s.uid()));
  }

  /** The directives, encoded, if their number is not {@code seen}; else null. */
  static native byte[] latest(long seen);

  /** Hands over an encoded snapshot. */
  static native boolean observe(byte[] snapshot);

  /** Milliseconds without an answer if they are more than fallback_after, else -1. */
  static native long silence();

  /** Null if the hint is well formed, else a sentence that shows the right form. */
  static synchronized String check(String hint) {
    return state == State.LOADED ? text(check(bytes(hint))) : null;
  }

  /** Moves the library's log lines to ours. */
  static void log() {
    for (byte[] line = line(); line != null; line = line()) {
      String text = text(line);
      switch (text.charAt(0)) {
        case '0' -> LOG.error("themis: {}", text.substring(1));
        case '1' -> LOG.info("themis: {}", text.substring(1));
        default -> LOG.debug("themis: {}", text.substring(1));
      }
    }
  }

  /** Closes the link and ends a core that it launched, within two seconds. */
  static synchronized void shut() {
    if (state == State.LOADED) {
      close();
    }
  }

  private static native int abi();

  private static native byte[] open(
      byte[] cluster, byte[] config, byte[] state, byte[] binary, byte[] socket, int uid);

  private static native byte[] check(byte[] hint);

  private static native byte[] line();

  private static native void close();

  private static byte[] bytes(String text) {
    return text.getBytes(UTF_8);
  }

  private static String text(byte[] bytes) {
    return bytes == null ? null : new String(bytes, UTF_8);
  }
}
