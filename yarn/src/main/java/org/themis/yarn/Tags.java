// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.Collection;
import java.util.TreeSet;

/**
 * What a user declared in application tags: {@code themis:runtime=3h}, {@code themis:checkpoint=10m}
 * and so on, one key each. Keys and values are those of a Slurm comment (bridge/hint.go), and
 * {@code gang=}, which only YARN needs. YARN itself turns tags to lower case.
 *
 * @param hint all but gang, in the form of a comment; "" if there is none
 * @param gang containers that start together; 0 if all of a demand do
 * @param problem what is wrong with gang, or null
 */
record Tags(String hint, int gang, String problem) {
  private static final String MARK = "themis:";
  private static final String GANG = "gang=";
  private static final int GANG_MOST = 1 << 16;

  static Tags of(Collection<String> tags) {
    StringBuilder hint = new StringBuilder();
    String gang = null;
    for (String tag : new TreeSet<>(tags)) {
      if (!tag.startsWith(MARK)) {
        continue;
      }
      String word = tag.substring(MARK.length()).trim();
      if (word.startsWith(GANG)) {
        gang = word.substring(GANG.length());
      } else {
        hint.append(hint.length() == 0 ? MARK : "").append(' ').append(word);
      }
    }
    int n = gang == null ? 0 : number(gang);
    String problem =
        n >= 0
            ? null
            : "themis hint: gang=\"" + gang + "\": must be a whole number from 1 to " + GANG_MOST
                + ", of containers that start together; the form is: themis:gang=4";
    return new Tags(hint.toString(), Math.max(n, 0), problem);
  }

  private static int number(String text) {
    try {
      int n = Integer.parseInt(text);
      return n >= 1 && n <= GANG_MOST ? n : -1;
    } catch (NumberFormatException e) {
      return -1;
    }
  }

  /** Null if all is well formed, else a sentence that shows the right form. Any thread. */
  String check() {
    if (problem != null) {
      return problem;
    }
    String wrong = hint.isEmpty() ? null : Shim.check(hint);
    return wrong == null
        ? null
        : wrong + "; as application tags one each: themis:app=NAME, themis:runtime=3h";
  }
}
