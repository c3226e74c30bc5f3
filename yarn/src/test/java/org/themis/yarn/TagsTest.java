// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.List;
import org.junit.jupiter.api.Test;

class TagsTest {
  @Test
  void readsAsACommentDoes() {
    Tags t = Tags.of(List.of("themis:runtime=3h", "team-blue", "themis:app=sweep7", "themis:gang=4"));
    assertEquals("themis: app=sweep7 runtime=3h", t.hint());
    assertEquals(4, t.gang());
    assertNull(t.check());
  }

  @Test
  void othersTagsAreNotOurs() {
    Tags t = Tags.of(List.of("themisto", "x:themis:runtime=3h"));
    assertEquals("", t.hint());
    assertEquals(0, t.gang());
  }

  @Test
  void refusesAGangThatIsNoNumber() {
    for (String gang : List.of("", "0", "-1", "x", "65537", "4.0")) {
      assertNotNull(Tags.of(List.of("themis:gang=" + gang)).check(), gang);
    }
  }
}
