// Runs Azurite's blob service, in memory. Told "table" or "queue" it runs that
// service too, and says at which port; with the paths of a certificate and its
// key by https, where tokens are taken. Told "stop" the blob service refuses
// connections until it is told "start". Each is answered by a line. It ends
// when standard input does: so it can't outlive the test that started it,
// however that ends.
//
// Azurite's own command would outlive it, and one that is ended and started
// again with its files has forgotten until when leases last. Telemetry is off
// unless something switches it on, and nothing here does.

const { createInterface } = require("readline");
const { BlobServerFactory } = require("azurite/dist/src/blob/BlobServerFactory");

function fail(error) {
  console.error(`Azurite: ${error.message}`);
  process.exit(1);
}

async function startOther(kind, cert = "", key = "") {
  const path = `azurite/dist/src/${kind.toLowerCase()}/${kind}`;
  const Server = require(`${path}Server`).default;
  const Configuration = require(`${path}Configuration`).default;
  const configuration = Object.assign(new Configuration("127.0.0.1", 0), {
    enableAccessLog: false,
    isMemoryPersistence: true,
    ...(cert && { cert, key, oauth: "basic" }),
  });
  const server = new Server(configuration);
  await server.start();
  server.httpServer.on("error", fail);
  console.log(server.httpServer.address().port);
}

async function main() {
  const server = await new BlobServerFactory().createServer();
  await server.start();
  server.httpServer.on("error", fail);
  const { address, port } = server.httpServer.address();
  const told = {
    stop() {
      server.httpServer.close(() => console.log("stopped"));
      server.httpServer.closeAllConnections();
    },
    start() {
      server.httpServer.listen(port, address, () => console.log("started"));
    },
    table: (...tls) => startOther("Table", ...tls).catch(fail),
    queue: (...tls) => startOther("Queue", ...tls).catch(fail),
  };
  createInterface({ input: process.stdin })
    .on("line", (line) => {
      const [word, ...rest] = line.split(" ");
      told[word](...rest);
    })
    .on("close", () => process.exit(0));
  console.log(port);
}

main().catch(fail);
