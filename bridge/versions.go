// SPDX-License-Identifier: Apache-2.0

// Package bridge is the contract between a host daemon's shim and the core: the
// wire messages (themis.proto, generated in pb), what users may declare
// (hint.go), what the command shows (view.go), and both ends of the link: a
// client that launches or attaches to a core and fails open without one, and a
// server that checks who is calling. It imports nothing else of ours.
package bridge

import (
	"github.com/hashicorp/go-plugin"
)

// Protocol is the version of the contract. A shim and a core that share no
// version refuse each other at the handshake.
const Protocol = 1

// Handshake tells a launched core from one started by hand. The cookie is no
// secret and no protection: peer credentials of the socket are.
var Handshake = plugin.HandshakeConfig{
	ProtocolVersion:  Protocol,
	MagicCookieKey:   "THEMIS_CORE",
	MagicCookieValue: "5f1b7c",
}

// ownerEnv tells a launched core its host daemon's uid.
const ownerEnv = "THEMIS_OWNER_UID"
