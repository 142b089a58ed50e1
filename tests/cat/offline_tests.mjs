// Runs whole tests: reads {engine, test, responses} from stdin, writes a record of each test.
import { readFileSync } from "node:fs";

const { engine, test, responses } = JSON.parse(readFileSync(0, "utf8"));
const { Session } = await import(`data:text/javascript,${encodeURIComponent(engine)}`);
const positions = new Map(test.items.map(({ id }, i) => [id, i]));
const records = responses.map((row) => {
  const session = new Session(test);
  while (!session.isOver) session.answer(row[positions.get(session.asked)]);
  return { reason: session.reason, answers: session.answers, estimate: session.estimate() };
});
process.stdout.write(JSON.stringify(records));
