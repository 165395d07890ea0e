package testbed

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// cassandraVersion is the release that is fetched.
const cassandraVersion = "5.0.6"

// CassandraJars gives the folder with the jars of Cassandra, and fetches them with Maven when the cache
// ($SALTERN_CACHE, else saltern in the user's own) does not have them: 66 MB. Two fetches at once are
// harmless: what is in the cache is whole.
func CassandraJars(ctx context.Context) (string, error) {
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "cassandra-"+cassandraVersion)
	lib := filepath.Join(dir, "lib")
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	draft, err := os.MkdirTemp(cache, ".cassandra-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(draft)
	if err := writeFile(filepath.Join(draft, "pom.xml"), cassandraPOM); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime",
		"-DoutputDirectory=lib")
	cmd.Dir = draft
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetching Cassandra with Maven (Debian: apt-get install maven openjdk-17-jre-headless): %w: %s",
			err, strings.TrimSpace(string(out)))
	}
	if err := os.Rename(draft, dir); err != nil {
		if _, there := os.Stat(lib); there != nil {
			return "", err
		} // somebody else was faster
	}
	return lib, nil
}

func cacheFolder() (string, error) {
	if dir := os.Getenv("SALTERN_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "saltern"), nil
}

const cassandraPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>saltern</groupId><artifactId>testbed</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId>
      <version>` + cassandraVersion + `</version>
    </dependency>
  </dependencies>
</project>
`

// cassandraYAML has Cassandra's defaults but for what makes it a node by itself. The largest mutation is
// half a segment of the commit log: 16 MiB.
const cassandraYAML = `cluster_name: testbed
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
data_file_directories: [{{.Dir}}/data/data]
commitlog_directory: {{.Dir}}/data/commitlog
saved_caches_directory: {{.Dir}}/data/saved_caches
hints_directory: {{.Dir}}/data/hints
cdc_raw_directory: {{.Dir}}/data/cdc_raw
commitlog_sync: periodic
commitlog_sync_period: 10000ms
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{seeds: "127.0.0.1:{{.Storage}}"}]
listen_address: 127.0.0.1
storage_port: {{.Storage}}
rpc_address: 127.0.0.1
native_transport_port: {{.Port}}
endpoint_snitch: SimpleSnitch
auto_snapshot: false
{{- if .Password}}
authenticator: PasswordAuthenticator
role_manager: CassandraRoleManager
{{- end}}
{{- if .TLS}}
client_encryption_options:
  enabled: true
  optional: true
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
  keystore: {{.Dir}}/conf/node.pem
{{- end}}
`

const logbackXML = `<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{{.Log}}</file>
    <encoder><pattern>%-5level %date %logger{20} - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="FILE"/></root>
</configuration>
`

// What Cassandra reaches into of Java 17, as its own conf/jvm17-server.options has it.
var (
	cassandraExports = []string{
		"java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/java.lang.ref",
		"java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server",
		"java.sql/java.sql", "jdk.unsupported/sun.misc",
	}
	cassandraOpens = []string{
		"java.base/java.lang.module", "java.base/jdk.internal.loader", "java.base/jdk.internal.ref",
		"java.base/jdk.internal.reflect", "java.base/jdk.internal.math", "java.base/jdk.internal.module",
		"java.base/jdk.internal.util.jar", "jdk.management/com.sun.management.internal", "java.base/sun.nio.ch",
		"java.base/java.io", "java.base/java.lang", "java.base/java.lang.reflect", "java.base/java.util",
		"java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.base/java.nio",
		"java.base/java.net",
	}
)

// writeCertificates makes an authority and a certificate of 127.0.0.1 for a day: ca.pem, and node.pem with
// the key. It gives the path of the first.
func writeCertificates(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "testbed"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return "", err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	node := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "127.0.0.1"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	nodeDER, err := x509.CreateCertificate(rand.Reader, node, ca, &key.PublicKey, caKey)
	if err != nil {
		return "", err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	// Cassandra takes the key first, then the chain.
	chain := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: nodeDER})...)
	if err := os.WriteFile(filepath.Join(dir, "node.pem"), append(chain, authority...), 0o600); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "ca.pem")
	return path, os.WriteFile(path, authority, 0o644)
}
